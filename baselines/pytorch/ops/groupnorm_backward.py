"""The gradients of group normalisation with SiLU and per-image scale and shift, as autograd computes them: each layer's own backward function."""

import torch

from baselines.pytorch.ops import groupnorm

NORMAL = groupnorm.NORMAL


def roundings(problem, compiled):
    """Of what the layers before and behind SiLU leave in the input's dtype; dgamma and dbeta are sums in it, too. Inductor stores the sums' terms."""
    if compiled:
        return 3
    return {"none": 4, "silu": 6, "silu+ss": 10}[problem.choice("fusion")]


def arrange(problem, inputs):
    return groupnorm.as_images(inputs, groupnorm.width_of(problem.integer("hw")), "x", "dy", "residual")


def build(problem):
    groups, eps, factor = problem.integer("groups"), problem.real("eps"), problem.real("residual_scale")
    silu = problem.choice("fusion") != "none"

    def run(inputs):
        x, dy, gamma = inputs["x"], inputs["dy"], inputs["gamma"]
        n, channels, height, width = x.shape
        sizes = (n, channels, height * width, groups)
        norm, mean, rstd = torch.native_group_norm(x, gamma, inputs["beta"], *sizes, eps)
        pair, of_pair = groupnorm.scale_and_shift(inputs), ()
        v = norm * (1 + pair[0]) + pair[1] if pair else norm
        dv = torch.ops.aten.silu_backward(dy, v) if silu else dy
        if pair:
            of_pair = ((dv * norm).sum((2, 3)), dv.sum((2, 3)))
            dv = dv * (1 + pair[0])
        dx, *of_affine = torch.ops.aten.native_group_norm_backward(dv, x, mean, rstd, gamma, *sizes, [True] * 3)
        if "residual" in inputs:
            dx = dx + factor * inputs["residual"]
        wide = torch.promote_types(x.dtype, torch.float32)
        of_pair = (torch.cat(of_pair, 1),) if "scale_shift" in inputs else of_pair
        return (dx, *(one.to(wide) for one in of_affine), *of_pair)

    return groupnorm.with_fp32_affine(problem, run)
