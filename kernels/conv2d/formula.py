"""conv2d in NumPy: values of a problem's fields and dtype as text, and its inputs in fp64, to its outputs."""

import numpy as np
from bench.plugin.new_kernel.formulas import activated, silu


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


def rounded(x, dtype):
    """To the nearest number of a tensor's dtype."""
    if dtype != "bf16":
        return x.astype({"fp16": np.float16, "fp32": np.float32}[dtype]).astype(float)
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(float)


def conv2d(values, inputs):
    x = inputs["x"]
    if "norm_coefficients" in inputs:
        x = x * inputs["norm_coefficients"][:, 0, None, None] + inputs["norm_coefficients"][:, 1, None, None]
        x = rounded(silu(x) if values["norm"] == "affine+silu" else x, values["dtype"])
    if values["upsample"] == "1":
        x = x.repeat(2, 1).repeat(2, 2)
    y = taps(x, inputs["w"], int(values["stride"]), int(values["pad"])) + inputs.get("bias", 0)
    if "side" in inputs:
        y = y + np.concatenate([inputs[name] for name in ("side", "side_skip") if name in inputs], 3) @ inputs["w_side"].T
    y = y * inputs.get("scale", 1) + inputs.get("shift", 0)
    if "image_shift" in inputs:
        y = y + inputs["image_shift"][:, None, None]
    residual = inputs.get("residual", 0)
    if values["residual_upsample"] == "1":
        residual = residual.repeat(2, 1).repeat(2, 2)
    return (float(values["gain"]) * (activated(values["act"], y) + residual),)


def conv2d_statistics(values, y):
    """mean and m2, which are of y as it was rounded."""
    parts = [y[:, row::2, column::2] for row in (0, 1) for column in (0, 1)] if values["upsample"] == "1" else [y]
    found = [slab_statistics(part.reshape(len(y), -1, y.shape[-1])) for part in parts]
    return tuple(np.stack(sum((statistics[i] for statistics in found), []), 1) for i in (0, 1))
