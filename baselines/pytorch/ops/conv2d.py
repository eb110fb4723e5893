"""A convolution of channels-last images, with bias, folded batch norm, timestep shift, activation and residual behind it.

cuDNN's autotuner is on (`cudnn.benchmark`), activations and weights are in channels_last memory format, as PyTorch recommends. An upsample is
F.interpolate before the convolution, likewise of a residual, a second source a 1x1 convolution of its concatenation, added behind it. Statistics of the output per slab of pixels have no counterpart in PyTorch and are refused.
"""

import torch
import torch.nn.functional as F

from baselines.pytorch.errors import Unsupported

ACTIVATIONS = {"none": lambda x: x, "silu": F.silu, "relu": F.relu}


def activation(problem):
    if problem.choice("act") not in ACTIVATIONS:
        raise Unsupported(f"the PyTorch baseline has no activation '{problem.choice('act')}'")
    return ACTIVATIONS[problem.choice("act")]


# Eager: the sums, then every function behind them; affine is a product and a sum, a second source a convolution and a sum. Compiled: a
# library's convolutions, and all that follows in one kernel.
def roundings(problem, compiled):
    before = 0 if problem.choice("norm") == "none" else 1 if compiled else 1 + (problem.choice("norm") == "affine+silu")
    side = problem.integer("side") > 0
    behind = [problem.flag("bias"), 2 * side, 2 * problem.flag("affine"), problem.flag("image_shift"), problem.choice("act") != "none",
              problem.flag("residual"), problem.real("gain") != 1]
    return before + (1 + side + any(behind) if compiled else 1 + sum(behind))


def channels_last(shape, dtype, device, generator, deviation=1.0, mean=0.0):
    """Normal numbers, [n, c, h, w] in PyTorch's eyes and NHWC in memory."""
    n, c, h, w = shape
    values = torch.randn(n, h, w, c, device=device, generator=generator) * deviation + mean
    return values.to(dtype).permute(0, 3, 1, 2)


def make_inputs(problem, dtype, device, generator):
    activation(problem)
    if problem.flag("stats"):
        raise Unsupported("PyTorch has no convolution that writes statistics of its output")
    torch.backends.cudnn.benchmark = True
    n, h, w, cin, cout, kernel = (problem.integer(name) for name in ("n", "h", "w", "cin", "cout", "kernel"))
    stride, pad, times = problem.integer("stride"), problem.integer("pad"), 2 if problem.flag("upsample") else 1

    def normal(*shape, deviation=1.0, mean=0.0):
        return (torch.randn(*shape, device=device, generator=generator) * deviation + mean).to(dtype)

    sides = {name: problem.integer(name) for name in ("side", "side_skip")}
    deviation = (kernel * kernel * cin + sum(sides.values())) ** -0.5
    inputs = {
        "x": channels_last((n, cin, h, w), dtype, device, generator),
        "w": channels_last((cout, cin, kernel, kernel), dtype, device, generator, deviation=deviation),
    }
    if problem.choice("norm") != "none":
        inputs["norm_coefficients"] = torch.randn(n, 2, cin, device=device, generator=generator) * 0.5 + 0.5
    if problem.flag("bias"):
        inputs["bias"] = normal(cout)
    if problem.flag("affine"):
        inputs["scale"], inputs["shift"] = normal(cout, deviation=0.25, mean=1.0), normal(cout)
    if problem.flag("image_shift"):
        inputs["image_shift"] = normal(n, cout)
    output = [(extent * times + 2 * pad - kernel) // stride + 1 for extent in (h, w)]
    if problem.flag("residual"):
        halved = 2 if problem.flag("residual_upsample") else 1
        inputs["residual"] = channels_last((n, cout, *(extent // halved for extent in output)), dtype, device, generator)
    for name, channels in sides.items():
        if channels:
            inputs[name] = channels_last((n, channels, *output), dtype, device, generator)
    if sides["side"]:
        inputs["w_side"] = channels_last((cout, sum(sides.values()), 1, 1), dtype, device, generator, deviation=deviation)
    return inputs


def _normed(problem, inputs, act):
    if "norm_coefficients" not in inputs:
        return inputs["x"]
    a, b = inputs["norm_coefficients"][..., None, None].unbind(1)
    x = inputs["x"] * a + b
    return (act(x) if problem.choice("norm") == "affine+silu" else x).to(inputs["x"].dtype)


def beside(inputs):
    """The second source: of one tensor, or of two one behind the other."""
    return torch.cat((inputs["side"], inputs["side_skip"]), 1) if "side_skip" in inputs else inputs["side"]


def _epilogue(problem, inputs, y, act):
    if "scale" in inputs:
        y = y * inputs["scale"][:, None, None] + inputs["shift"][:, None, None]
    if "image_shift" in inputs:
        y = y + inputs["image_shift"][:, :, None, None]
    y = act(y)
    if "residual" in inputs:
        residual = inputs["residual"]
        y = y + (F.interpolate(residual, scale_factor=2, mode="nearest") if problem.flag("residual_upsample") else residual)
    return y if problem.real("gain") == 1 else y * problem.real("gain")


def build(problem):
    stride, pad, upsample, act = problem.integer("stride"), problem.integer("pad"), problem.flag("upsample"), activation(problem)

    def run(inputs):
        x = _normed(problem, inputs, F.silu)
        if upsample:
            x = F.interpolate(x, scale_factor=2, mode="nearest")
        y = F.conv2d(x, inputs["w"], inputs.get("bias"), stride=stride, padding=pad)
        if "side" in inputs:
            y = y + F.conv2d(beside(inputs), inputs["w_side"])
        return (_epilogue(problem, inputs, y, act),)

    return run


def wide_activation(problem, x):
    act = problem.choice("act")
    return x / (1 + torch.exp(-x)) if act == "silu" else x.clamp(min=0) if act == "relu" else x


def sums(x, w, stride, pad):
    """The convolution in fp64 as one product per tap, from its definition."""
    kernel = w.shape[2:]
    padded = torch.zeros(x.shape[0], x.shape[1], x.shape[2] + 2 * pad[0], x.shape[3] + 2 * pad[1], dtype=x.dtype, device=x.device)
    padded[:, :, pad[0] : pad[0] + x.shape[2], pad[1] : pad[1] + x.shape[3]] = x
    height, width = ((padded.shape[2 + i] - kernel[i]) // stride + 1 for i in (0, 1))
    total = 0
    for ky in range(kernel[0]):
        for kx in range(kernel[1]):
            window = padded[:, :, ky : ky + stride * (height - 1) + 1 : stride, kx : kx + stride * (width - 1) + 1 : stride]
            total = total + torch.einsum("nchw,oc->nohw", window, w[:, :, ky, kx])
    return total


def reference(problem, inputs):
    wide = {name: tensor.double() for name, tensor in inputs.items()}
    x = _normed(problem, wide, lambda value: value / (1 + torch.exp(-value))).to(inputs["x"].dtype).double()  # rounded, as the oracle has it
    if problem.flag("upsample"):
        x = x.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
    pad = problem.integer("pad")
    y = sums(x, wide["w"], problem.integer("stride"), (pad, pad))
    if "side" in wide:
        y = y + sums(beside(wide), wide["w_side"], 1, (0, 0))
    if "bias" in wide:
        y = y + wide["bias"][:, None, None]
    return (_epilogue(problem, wide, y, lambda value: wide_activation(problem, value)),)
