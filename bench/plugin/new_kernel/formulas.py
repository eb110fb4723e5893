"""Every op in fp64 NumPy, from the formulas in the headers under kernels/: reference(values, inputs) -> its outputs in order.

`values` are a problem's fields as text, `inputs` its tensors in fp64. None stands for an output that cannot be foretold (drawn noise).
"""

import math

import numpy as np


def erf(x):
    return np.vectorize(math.erf, otypes=[float])(x)


def silu(x):
    return x / (1 + np.exp(-x))


def gelu(x):
    return x * (1 + erf(x / math.sqrt(2))) / 2


def gelu_tanh(x):
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def activated(act, y):
    return {"none": lambda: y, "silu": lambda: silu(y), "relu": lambda: np.maximum(y, 0), "gelu": lambda: gelu(y),
            "gelu_tanh": lambda: gelu_tanh(y)}[act]()


def heads(values, inputs):
    """q, k and v, each [..., heads, dim]; of a packed tensor taken apart."""
    if "qkv" not in inputs:
        return inputs["q"], inputs["k"], inputs["v"]
    axis = {"packed_3hd": -3, "packed_h3d": -2, "packed_hd3": -1}[values["layout"]]
    return (np.take(inputs["qkv"], part, axis) for part in range(3))


def softmax_product(values, q, k, v):
    """Over the axis before the last but one: [..., sequence, heads, dim]."""
    scale = float(values["scale"]) or 1 / math.sqrt(q.shape[-1])
    s = scale * np.einsum("...ihd,...jhd->...hij", q, k)
    top = s.max(-1, keepdims=True)
    lse = top + np.log(np.exp(s - top).sum(-1, keepdims=True))
    return np.einsum("...hij,...jhd->...ihd", np.exp(s - lse), v), lse[..., 0]


def attention(values, inputs):
    out, lse = softmax_product(values, *heads(values, inputs))
    return (out, lse) if values["lse"] == "1" else (out,)


def temporal_attention(values, inputs):
    q, k, v = (part.swapaxes(1, 2) for part in heads(values, inputs))  # [batch, hw, frames, heads, dim]
    return (softmax_product(values, q, k, v)[0].swapaxes(1, 2),)


def gemm(values, inputs):
    y = float(values["scale"]) * inputs["a"] @ inputs["b"].T + inputs.get("bias", 0)
    half = int(values["n"])
    y = y[:, :half] * gelu(y[:, half:]) if values["act"] == "geglu" else activated(values["act"], y)
    return (y + inputs.get("residual", 0),)


def taps(x, w, stride, pad):
    """A convolution of [n, h, w, cin] with [cout, kernel, kernel, cin]."""
    kernel = w.shape[1]
    x = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), (1, 2))[:, ::stride, ::stride]
    return np.einsum("nyxcij,oijc->nyxo", windows, w)


def slab_statistics(y):
    """Mean and squared deviations of every 64 pixels of [n, pixels, channels]."""
    slabs = [y[:, first : first + 64] for first in range(0, y.shape[1], 64)]
    means = [slab.mean(1) for slab in slabs]
    return means, [((slab - mean[:, None]) ** 2).sum(1) for slab, mean in zip(slabs, means)]


def conv2d(values, inputs, rounded=lambda x: x):
    """`rounded`: to the dtype, as what a norm in front gives is."""
    x = inputs["x"]
    if "norm_coefficients" in inputs:
        x = x * inputs["norm_coefficients"][:, 0, None, None] + inputs["norm_coefficients"][:, 1, None, None]
        x = rounded(silu(x) if values["norm"] == "affine+silu" else x)
    if values["upsample"] == "1":
        x = x.repeat(2, 1).repeat(2, 2)
    y = taps(x, inputs["w"], int(values["stride"]), int(values["pad"])) + inputs.get("bias", 0)
    if "side" in inputs:
        y = y + np.concatenate([inputs[name] for name in ("side", "side_skip") if name in inputs], 3) @ inputs["w_side"].T
    y = y * inputs.get("scale", 1) + inputs.get("shift", 0)
    if "image_shift" in inputs:
        y = y + inputs["image_shift"][:, None, None]
    return (float(values["gain"]) * (activated(values["act"], y) + inputs.get("residual", 0)),)


def conv2d_statistics(values, y):
    """mean and m2, which are of y as it was rounded."""
    parts = [y[:, row::2, column::2] for row in (0, 1) for column in (0, 1)] if values["upsample"] == "1" else [y]
    found = [slab_statistics(part.reshape(len(y), -1, y.shape[-1])) for part in parts]
    return tuple(np.stack(sum((statistics[i] for statistics in found), []), 1) for i in (0, 1))


def conv_transpose2d(values, inputs):
    """Each tap adds every pixel, times its weights, to an output of its own; the rim is cut off."""
    x, w = inputs["x"], inputs["w"]
    kernel, pad = w.shape[1], int(w.shape[1] == 4)
    n, h, width, _ = x.shape
    y = np.zeros((n, 2 * h - 2 + kernel, 2 * width - 2 + kernel, w.shape[0]))
    for i in range(kernel):
        for j in range(kernel):
            y[:, i : i + 2 * h - 1 : 2, j : j + 2 * width - 1 : 2] += x @ w[:, i, j].T
    return (activated(values["act"], y[:, pad : pad + 2 * h, pad : pad + 2 * width] + inputs.get("bias", 0)),)


def conv3d_temporal(values, inputs):
    x = np.pad(inputs["x"], ((0, 0), (1, 1), (0, 0), (0, 0)))
    frames = inputs["x"].shape[1]
    y = sum(x[:, tap : tap + frames] @ inputs["w"][:, tap].T for tap in range(3))
    return (y + inputs.get("bias", 0) + inputs.get("residual", 0),)


def group_statistics(values, inputs):
    """Mean and variance of [n, groups], of x or of its slabs' statistics."""
    n, hw, channels, groups = (int(values[name]) for name in ("n", "hw", "channels", "groups"))
    if "slab_mean" not in inputs:
        grouped = inputs["x"].reshape(n, hw, groups, -1)
        return grouped.mean((1, 3)), grouped.var((1, 3))
    quarters = 4 if values["slab_stats"] == "quarters" else 1
    slabs = [min(64, hw // quarters - first) for _ in range(quarters) for first in range(0, hw // quarters, 64)]
    rows = np.array(slabs, float)[:, None, None]
    means, m2 = (inputs[name].reshape(n, len(slabs), groups, -1) for name in ("slab_mean", "slab_m2"))
    count = hw * channels // groups
    mean = (rows * means).sum((1, 3)) / count
    return mean, (m2 + rows * (means - mean[:, None, :, None]) ** 2).sum((1, 3)) / count


def groupnorm(values, inputs):
    if "skip" in inputs:
        inputs = {**inputs, "x": np.concatenate((inputs["x"], inputs["skip"]), 2)}
    mean, variance = group_statistics(values, inputs)
    rstd = 1 / np.sqrt(variance + float(values["eps"]))
    wide = [np.repeat(part, int(values["channels"]) // mean.shape[1], 1)[:, None] for part in (mean, rstd)]
    a = wide[1] * inputs["gamma"]
    b = inputs["beta"] - wide[0] * a
    if values["fusion"] == "silu+ss":
        pair = np.split(inputs["scale_shift"], 2, 1) if "scale_shift" in inputs else (inputs["scale"], inputs["shift"])
        a, b = a * (1 + pair[0][:, None]), b * (1 + pair[0][:, None]) + pair[1][:, None]
    if values["coefficients"] == "1":
        y = np.concatenate((a, b), 1)
    else:
        y = inputs["x"] * a + b
        y = y if values["fusion"] == "none" else silu(y)
    return (y, mean, rstd) if values["stats"] == "1" else (y,)


def layernorm(values, inputs):
    x = inputs["x"] + inputs.get("residual", 0)
    y = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + float(values["eps"]))
    y = y * inputs.get("gamma", 1) + inputs.get("beta", 0)
    if "scale" in inputs:
        images = y.reshape(len(inputs["scale"]), -1, y.shape[1])
        y = (images * (1 + inputs["scale"][:, None]) + inputs["shift"][:, None]).reshape(y.shape)
    return (x, y) if "residual" in inputs else (y,)


def elementwise(values, inputs):
    op, x = values["op"], inputs.get("x")
    if op == "silu_fma":
        a, c = (inputs[name][:, None] if values["broadcast"] == "1" else inputs[name] for name in ("a", "c"))
        return (silu(a + inputs["b"] * c),)
    if op == "add":
        return ((inputs["a"] + inputs["b"]) * float(values["scale"]),)
    if op == "geglu":
        value, gate = np.split(x, 2, -1)
        return (value * gelu(gate),)
    return (x.swapaxes(1, 2) if "_to_" in op else x if op == "cast" else activated(op, x),)


def resample(values, inputs):
    x = inputs["x"]
    if values["op"] == "nearest_up2":
        return (x.repeat(2, 1).repeat(2, 2),)
    if values["op"] == "concat":
        return (np.concatenate((x, inputs["skip"]), 3),)
    n, h, w, channels = x.shape
    return (x.reshape(n, h // 2, 2, w // 2, 2, channels).mean((2, 4)),)


def timestep_embedding(values, inputs):
    half = int(values["channels"]) // 2
    steps = np.arange(half) / (half - 1 if values["endpoint"] == "1" else half) if half > 1 else np.zeros(1)
    frequencies = 2 * math.pi * inputs["freqs"] if "freqs" in inputs else float(values["max_period"]) ** -steps
    angles = np.outer(inputs["t"], frequencies)
    parts = [np.cos(angles), np.sin(angles)]
    y = np.concatenate(parts if values["order"] == "cos_sin" else parts[::-1], 1)
    if "w1" in inputs:
        y = silu(y @ inputs["w1"].T + inputs["b1"]) @ inputs["w2"].T + inputs["b2"]
        y = silu(y) if values["final_silu"] == "1" else y
    return (y,)


def edm_precondition(values, inputs):
    data, sigma = float(values["sigma_data"]), inputs["sigma"][:, None]
    deviation = np.hypot(data, sigma)
    if values["side"] == "input":
        return inputs["x"] / deviation, np.log(inputs["sigma"]) / 4
    return ((data / deviation) ** 2 * inputs["x"] + sigma * data / deviation * inputs["f"],)


def q_sample(values, inputs):
    if "noise" not in inputs:
        return (None,) * (1 + int(values["keep"]))
    return (inputs["levels"][:, :1] * inputs["x0"] + inputs["levels"][:, 1:] * inputs["noise"],)


def sampler_step(values, inputs):
    """kernels/sampler_step/coefficients.h; drawn noise has a coefficient of 0 in these tests."""
    (model_x, model, model_cond, limit, of_x, of_x0, history, noise, previous, history_x, history_x0, _) = inputs["coefficients"][int(values["step"])]
    x, output = inputs["x"], inputs["model_output"]
    guided = output[0] * model + output[1] * model_cond if output.ndim > x.ndim else output * model
    x0 = np.clip(model_x * x + guided, -limit, limit)
    y = of_x * x + of_x0 * x0 + history * inputs.get("history", 0) + noise * inputs.get("noise", 0) + previous * inputs.get("previous_frame", 0)
    return y, history_x * x + history_x0 * x0  # the second where the problem has it
