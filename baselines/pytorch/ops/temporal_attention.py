"""Attention along the frames of each pixel, by scaled_dot_product_attention.

The fused kernels take one batch dimension, so a user permutes [batch, frames, h*w, heads, dim] to [batch * h*w, frames, heads, dim] first, and
back afterwards. Neither is timed here: the inputs are made in that order, which favours PyTorch.
"""

from baselines.pytorch.ops import attention
from baselines.pytorch.ops.attention import build, build_variant, in_parts, roundings

__all__ = ["arrange", "build", "build_variant", "reference", "roundings"]
reference = in_parts


def arrange(problem, inputs):
    return attention.arrange(problem, {name: value.transpose(1, 2).flatten(0, 1).contiguous() for name, value in inputs.items()})
