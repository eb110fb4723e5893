"""The gradients of group normalisation with SiLU and per-image scale and shift, as autograd computes them: each layer's own backward function, of the
forward pass's mean and rstd. What SiLU had as its input is made again, in one pass."""

import torch

from baselines.pytorch.ops import groupnorm

NORMAL = groupnorm.NORMAL | {"mean": (0.5, 0.1)}  # x's


def roundings(problem, compiled):
    """Of what the layers before and behind SiLU leave in the input's dtype; dgamma and dbeta are sums in it, too. Inductor stores the sums' terms."""
    if compiled:
        return 3
    return {"none": 4, "silu": 6, "silu+ss": 10}[problem.choice("fusion")]


def arrange(problem, inputs):
    return groupnorm.as_images(inputs, groupnorm.width_of(problem.integer("hw")), "x", "dy", "residual")


def build(problem):
    groups, factor, silu = problem.integer("groups"), problem.real("residual_scale"), problem.choice("fusion") != "none"

    def run(inputs):
        x, dy, gamma = inputs["x"], inputs["dy"], inputs["gamma"]
        n, channels, height, width = x.shape
        sizes = (n, channels, height * width, groups)
        mean, rstd = inputs["mean"].to(x.dtype), inputs["rstd"].to(x.dtype)
        pair, of_pair, dv = groupnorm.scale_and_shift(inputs), (), dy
        if silu:
            a = inputs["rstd"][:, :, None] * gamma.view(groups, -1)
            b = torch.addcmul(inputs["beta"].view(groups, -1), inputs["mean"][:, :, None], a, value=-1)
            a, b = (one.to(x.dtype).view(n, channels, 1, 1) for one in (a, b))
            norm = torch.addcmul(b, x, a)
            dv = torch.ops.aten.silu_backward(dy, norm * (1 + pair[0]) + pair[1] if pair else norm)
        if pair:
            of_pair = ((dv * norm).sum((2, 3)), dv.sum((2, 3)))
            dv = dv * (1 + pair[0])
        if x.is_cuda:  # as autograd hands them over: its kernel takes no other layout
            dv, x = dv.contiguous(), x.contiguous()
        dx, *of_affine = torch.ops.aten.native_group_norm_backward(dv, x, mean, rstd, gamma, *sizes, [True] * 3)
        if "residual" in inputs:
            dx = dx + factor * inputs["residual"]
        wide = torch.promote_types(x.dtype, torch.float32)
        of_pair = (torch.cat(of_pair, 1),) if "scale_shift" in inputs else of_pair
        return (dx, *(one.to(wide) for one in of_affine), *of_pair)

    return groupnorm.with_fp32_affine(problem, run)
