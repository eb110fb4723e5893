"""A convolution of channels-last images, with bias, folded batch norm, timestep shift, activation and residual behind it.

cuDNN's autotuner is on (`cudnn.benchmark`), activations and weights are in channels_last memory format, as PyTorch recommends. An upsample is
F.interpolate before the convolution, likewise of a residual, a second source a 1x1 convolution of its concatenation, added behind it. Statistics of the output per slab of pixels have no counterpart in PyTorch and are refused.
"""

import torch
import torch.nn.functional as F

from baselines.pytorch.errors import Unsupported
from baselines.pytorch.ops import behind, function_of, images


# Eager: the sums, then every function behind them; affine is a product and a sum, a second source a convolution and a sum. Compiled: a
# library's convolutions, and all that follows in one kernel.
def roundings(problem, compiled):
    before = 0 if problem.choice("norm") == "none" else 1 if compiled else 1 + (problem.choice("norm") == "affine+silu")
    side = problem.integer("side") > 0
    return before + side * compiled + behind(compiled, problem.flag("bias"), 2 * side, 2 * problem.flag("affine"), problem.flag("image_shift"),
                                             problem.choice("act") != "none", problem.flag("residual"), problem.real("gain") != 1)  # fmt: skip


def arrange(problem, inputs):
    if "w_side" in inputs:
        inputs["w_side"] = inputs["w_side"][:, None, None]
    return images(inputs, "x", "w", "residual", "side", "side_skip", "w_side")


def _normed(problem, inputs):
    if "norm_coefficients" not in inputs:
        return inputs["x"]
    a, b = inputs["norm_coefficients"][..., None, None].unbind(1)
    x = inputs["x"] * a + b
    return (F.silu(x) if problem.choice("norm") == "affine+silu" else x).to(inputs["x"].dtype)


def build(problem):
    if problem.flag("stats"):
        raise Unsupported("PyTorch has no convolution that writes statistics of its output")
    stride, pad, upsample, act, gain = problem.integer("stride"), problem.integer("pad"), problem.flag("upsample"), function_of(problem), problem.real("gain")

    def run(inputs):
        x = _normed(problem, inputs)
        if upsample:
            x = F.interpolate(x, scale_factor=2, mode="nearest")
        y = F.conv2d(x, inputs["w"], inputs.get("bias"), stride=stride, padding=pad)
        if "side" in inputs:
            y = y + F.conv2d(torch.cat((inputs["side"], inputs["side_skip"]), 1) if "side_skip" in inputs else inputs["side"], inputs["w_side"])
        if "scale" in inputs:
            y = y * inputs["scale"][:, None, None] + inputs["shift"][:, None, None]
        if "image_shift" in inputs:
            y = y + inputs["image_shift"][:, :, None, None]
        y = act(y)
        if "residual" in inputs:
            residual = inputs["residual"]
            y = y + (F.interpolate(residual, scale_factor=2, mode="nearest") if problem.flag("residual_upsample") else residual)
        return (y if gain == 1 else y * gain,)

    return run
