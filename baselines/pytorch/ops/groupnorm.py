"""Group normalisation of a channels-last activation, with SiLU and per-image scale and shift behind it.

PyTorch's CUDA group_norm copies a channels-last input into NCHW and leaves its result there. The row times that as it is; a network would
pay for the way back in the next convolution. With down_w it averages two tensors, of which the other one stays as it came.
"""

import math

import torch
import torch.nn.functional as F

from baselines.pytorch.errors import Unsupported


def roundings(problem, compiled):
    """PyTorch's kernel keeps mean and rstd in the input's dtype, so they are rounded too. Inductor's statistics are fp32; it may store the
    normalised tensor before what follows. Coefficients are fp32 all the way."""
    if problem.flag("coefficients"):
        return 1
    if compiled:
        return 1 if problem.choice("fusion") == "none" else 2
    return {"none": 3, "silu": 4, "silu+ss": 7}[problem.choice("fusion")]


def make_inputs(problem, dtype, device, generator):
    if problem.choice("fusion") not in ("none", "silu", "silu+ss"):
        raise Unsupported(f"the PyTorch baseline has no fusion '{problem.choice('fusion')}'")
    if problem.choice("slab_stats") != "none":
        raise Unsupported("PyTorch's group_norm takes no statistics per slab of pixels")
    n, hw, channels = (problem.integer(name) for name in ("n", "hw", "channels"))
    down_w = problem.integer("down_w")
    height = hw // down_w if down_w else next(divisor for divisor in range(math.isqrt(hw), 0, -1) if hw % divisor == 0)

    def normal(*shape, mean=0.0):
        return (torch.randn(*shape, device=device, generator=generator) + mean).to(dtype)

    def image(of):  # logically NCHW, in memory NHWC
        return normal(n, height, hw // height, of, mean=0.5).permute(0, 3, 1, 2)

    skip = problem.integer("skip_channels")
    inputs = {"x": image(channels - skip), "gamma": normal(channels, mean=1.0), "beta": normal(channels)}
    if skip:
        inputs["skip"] = image(skip)
    if problem.flag("packed"):
        inputs["scale_shift"] = normal(n, 2 * channels)
    elif problem.choice("fusion") == "silu+ss":
        inputs["scale"] = normal(n, channels)
        inputs["shift"] = normal(n, channels)
    return inputs


def whole(inputs):
    """What is normalised: x, or its concatenation with a skip."""
    return torch.cat((inputs["x"], inputs["skip"]), 1) if "skip" in inputs else inputs["x"]


def scale_and_shift(inputs):
    """Each [n, channels, 1, 1]; of a packed tensor they are views. Nothing where the problem has neither."""
    if "scale_shift" in inputs:
        return inputs["scale_shift"][:, :, None, None].chunk(2, dim=1)
    return (inputs["scale"][:, :, None, None], inputs["shift"][:, :, None, None]) if "scale" in inputs else ()


def coefficients(problem, wide):
    """a and b, [n, 2, channels], of y = fusion(x * a + b), then mean and rstd; in the dtype of `wide`'s tensors."""
    x, groups = wide["x"], problem.integer("groups")
    n, channels = x.shape[:2]
    variance, mean = torch.var_mean(x.reshape(n, groups, -1), dim=2, correction=0)
    rstd = torch.rsqrt(variance + problem.real("eps"))
    each_mean, each_rstd = (part.repeat_interleave(channels // groups, 1) for part in (mean, rstd))
    a = each_rstd * wide["gamma"]
    b = wide["beta"] - each_mean * a
    if pair := scale_and_shift(wide):
        scale, shift = (part[:, :, 0, 0] for part in pair)
        a, b = a * (1 + scale), b * (1 + scale) + shift
    return torch.stack((a, b), dim=1), mean, rstd


def build(problem):
    groups, eps, stats = problem.integer("groups"), problem.real("eps"), problem.flag("stats")
    silu = problem.choice("fusion") != "none"
    if problem.flag("coefficients"):
        wanted = 3 if stats else 1
        return lambda inputs: coefficients(problem, {name: tensor.float() for name, tensor in inputs.items()})[:wanted]

    def run(inputs):
        x, gamma, beta, statistics = whole(inputs), inputs["gamma"], inputs["beta"], ()
        if stats:
            n, channels, height, width = x.shape
            y, *statistics = torch.native_group_norm(x, gamma, beta, n, channels, height * width, groups, eps)
        else:
            y = F.group_norm(x, groups, gamma, beta, eps)
        if pair := scale_and_shift(inputs):
            y = y * (1 + pair[0]) + pair[1]
        y = F.silu(y) if silu else y
        return (F.avg_pool2d(y, 2), F.avg_pool2d(x, 2), *statistics) if problem.integer("down_w") else (y, *statistics)

    return run


def reference(problem, inputs):
    wide = {name: tensor.double() for name, tensor in inputs.items()}
    x = whole(wide)
    n, channels, height, width = x.shape
    groups = problem.integer("groups")
    grouped = x.reshape(n, groups, channels // groups, height, width)
    variance, mean = torch.var_mean(grouped, dim=(2, 3, 4), correction=0, keepdim=True)
    rstd = torch.rsqrt(variance + problem.real("eps"))
    if problem.flag("coefficients"):  # of what the op makes of 1 and of 0
        grouped = grouped.new_tensor((1, 0)).expand(n, groups, channels // groups, 1, 2)
    y = ((grouped - mean) * rstd).reshape(n, channels, *grouped.shape[3:])
    y = y * wide["gamma"][:, None, None] + wide["beta"][:, None, None]
    if pair := scale_and_shift(wide):
        y = y * (1 + pair[0]) + pair[1]
    if problem.flag("coefficients"):
        y = torch.stack((y[:, :, 0, 0] - y[:, :, 0, 1], y[:, :, 0, 1]), dim=1)
    elif problem.choice("fusion") != "none":
        y = y / (1 + torch.exp(-y))
    statistics = (mean.reshape(n, groups), rstd.reshape(n, groups)) if problem.flag("stats") else ()
    return (F.avg_pool2d(y, 2), F.avg_pool2d(x, 2), *statistics) if problem.integer("down_w") else (y, *statistics)
