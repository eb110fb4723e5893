"""A 3x1x1 convolution along the frames of a video. Frames are the rows of a channels-last image and the pixels of a frame its columns, so
that F.conv2d reads the video where it lies; F.conv3d would want channels first, a copy that a row should not be charged for."""

import torch
import torch.nn.functional as F

from baselines.pytorch.ops.conv2d import channels_last, sums


def roundings(problem, compiled):
    behind = [problem.flag("bias"), problem.flag("image_shift"), problem.flag("residual")]
    return 1 + any(behind) if compiled else 1 + sum(behind)


def make_inputs(problem, dtype, device, generator):
    torch.backends.cudnn.benchmark = True
    batch, frames, hw, cin, cout = (problem.integer(name) for name in ("batch", "frames", "hw", "cin", "cout"))
    inputs = {
        "x": channels_last((batch, cin, frames, hw), dtype, device, generator),
        "w": channels_last((cout, cin, 3, 1), dtype, device, generator, deviation=(3 * cin) ** -0.5),
    }
    if problem.flag("bias"):
        inputs["bias"] = torch.randn(cout, device=device, generator=generator).to(dtype)
    if problem.flag("image_shift"):
        inputs["image_shift"] = torch.randn(batch, cout, device=device, generator=generator).to(dtype)
    if problem.flag("residual"):
        inputs["residual"] = channels_last((batch, cout, frames, hw), dtype, device, generator)
    return inputs


def _epilogue(inputs, y):
    if "image_shift" in inputs:
        y = y + inputs["image_shift"][:, :, None, None]
    return y + inputs["residual"] if "residual" in inputs else y


def build(problem):
    def run(inputs):
        return (_epilogue(inputs, F.conv2d(inputs["x"], inputs["w"], inputs.get("bias"), padding=(1, 0))),)

    return run


def reference(problem, inputs):
    wide = {name: tensor.double() for name, tensor in inputs.items()}
    y = sums(wide["x"], wide["w"], 1, (1, 0))
    if "bias" in wide:
        y = y + wide["bias"][:, None, None]
    return (_epilogue(wide, y),)
