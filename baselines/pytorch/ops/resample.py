"""Changes of resolution and the skip concatenation, of channels-last activations as PyTorch keeps them: logically NCHW, in memory NHWC."""

import torch
import torch.nn.functional as F


def roundings(problem, compiled):
    return 1


def make_inputs(problem, dtype, device, generator):
    n, h, w = (problem.integer(name) for name in ("n", "h", "w"))

    def normal(channels):
        return torch.randn(n, h, w, channels, device=device, generator=generator).to(dtype).permute(0, 3, 1, 2)

    inputs = {"x": normal(problem.integer("channels"))}
    if problem.choice("op") == "concat":
        inputs["skip"] = normal(problem.integer("skip_channels"))
    return inputs


def build(problem):
    op = problem.choice("op")

    def run(inputs):
        x = inputs["x"]
        if op == "nearest_up2":
            return (F.interpolate(x, scale_factor=2, mode="nearest"),)
        if op == "average_down2":
            return (F.avg_pool2d(x, 2),)
        return (torch.cat([x, inputs["skip"]], dim=1),)

    return run


def reference(problem, inputs):
    x, op = inputs["x"].double(), problem.choice("op")
    if op == "nearest_up2":
        return (x.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3),)
    if op == "average_down2":
        return ((x[:, :, ::2, ::2] + x[:, :, ::2, 1::2] + x[:, :, 1::2, ::2] + x[:, :, 1::2, 1::2]) / 4,)
    n, channels, h, w = x.shape
    skip = inputs["skip"].double()
    y = x.new_empty(n, channels + skip.shape[1], h, w)
    y[:, :channels], y[:, channels:] = x, skip
    return (y,)
