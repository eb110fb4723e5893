"""Group normalisation of a channels-last activation, with SiLU and per-image scale and shift behind it.

PyTorch's CUDA group_norm copies a channels-last input into NCHW and leaves its result there. The row times that as it is; a network would
pay for the way back in the next convolution. With down_w it averages two tensors, of which the other one stays as it came.
"""

import math

import torch
import torch.nn.functional as F

from baselines.pytorch.errors import Unsupported
from baselines.pytorch.ops import images


def roundings(problem, compiled):
    """PyTorch's kernel keeps mean and rstd in the input's dtype, so they are rounded too. Inductor's statistics are fp32; it may store the
    normalised tensor before what follows. Coefficients are fp32 all the way."""
    if problem.flag("coefficients"):
        return 1
    if compiled:
        return 1 if problem.choice("fusion") == "none" else 2
    return {"none": 3, "silu": 4, "silu+ss": 7}[problem.choice("fusion")]


# PyTorch rounds an image's mean into its dtype: at the program's 3 that alone would be off by more than the tolerance.
NORMAL = {"x": (0.5, 1.0), "skip": (0.5, 1.0)}


def width_of(hw):
    return hw // next(divisor for divisor in range(math.isqrt(hw), 0, -1) if hw % divisor == 0)


def as_images(inputs, width, *names):
    return images({name: value.unflatten(1, (-1, width)) if name in names else value for name, value in inputs.items()}, *names)


def arrange(problem, inputs):
    """Images of as many rows and columns as the pixels allow."""
    return as_images(inputs, problem.integer("down_w") or width_of(problem.integer("hw")), "x", "skip")


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


def with_fp32_affine(problem, run):
    """With fp32_affine all in fp32, as autocast runs it: PyTorch's group_norm takes one type. The second and third output of both ops stay fp32."""
    if not problem.flag("fp32_affine"):
        return run

    def widened(inputs):
        outputs = run({name: tensor.to(inputs["gamma"].dtype) for name, tensor in inputs.items()})
        return tuple(output if i in (1, 2) else output.to(inputs["x"].dtype) for i, output in enumerate(outputs))

    return widened


def build(problem):
    if problem.choice("slab_stats") != "none":
        raise Unsupported("PyTorch's group_norm takes no statistics per slab of pixels")
    groups, eps, stats = problem.integer("groups"), problem.real("eps"), problem.flag("stats")
    silu = problem.choice("fusion") != "none"
    if problem.flag("coefficients"):
        wanted = 3 if stats else 1

        def run_coefficients(inputs):
            wide = torch.promote_types(inputs["x"].dtype, torch.float32)
            return coefficients(problem, {name: tensor.to(wide) for name, tensor in inputs.items()})[:wanted]

        return run_coefficients

    def run(inputs):
        x, gamma, beta, statistics = torch.cat((inputs["x"], inputs["skip"]), 1) if "skip" in inputs else inputs["x"], inputs["gamma"], inputs["beta"], ()
        if stats:
            n, channels, height, width = x.shape
            y, *statistics = torch.native_group_norm(x, gamma, beta, n, channels, height * width, groups, eps)
        else:
            y = F.group_norm(x, groups, gamma, beta, eps)
        if pair := scale_and_shift(inputs):
            y = y * (1 + pair[0]) + pair[1]
        y = F.silu(y) if silu else y
        return (F.avg_pool2d(y, 2), F.avg_pool2d(x, 2), *statistics) if problem.integer("down_w") else (y, *statistics)

    return with_fp32_affine(problem, run)
