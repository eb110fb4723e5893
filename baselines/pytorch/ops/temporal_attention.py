"""Attention along the frames of each pixel, by scaled_dot_product_attention.

The fused kernels take one batch dimension, so a user permutes [batch, frames, h*w, heads, dim] to [batch * h*w, frames, heads, dim] first, and
back afterwards. Neither is timed here: the inputs are made in that order, which favours PyTorch.
"""

from baselines.pytorch.ops.attention import build, build_variant, projections, reference, roundings

__all__ = ["build", "build_variant", "make_inputs", "reference", "roundings"]


def make_inputs(problem, dtype, device, generator):
    tokens = (problem.integer("batch") * problem.integer("hw"), problem.integer("frames"))
    q, k, v = projections(problem, tokens, tokens, dtype, device, generator)
    return {"q": q, "k": k, "v": v}
