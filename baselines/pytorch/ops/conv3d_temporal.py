"""A 3x1x1 convolution along the frames of a video. Frames are the rows of a channels-last image and the pixels of a frame its columns, so
that F.conv2d reads the video where it lies; F.conv3d would want channels first, a copy that a row should not be charged for."""

import torch.nn.functional as F

from baselines.pytorch.ops import behind, images


def roundings(problem, compiled):
    return behind(compiled, problem.flag("bias"), problem.flag("image_shift"), problem.flag("residual"))


def arrange(problem, inputs):
    return images({**inputs, "w": inputs["w"][:, :, None]}, "x", "w", "residual")


def build(problem):
    def run(inputs):
        y = F.conv2d(inputs["x"], inputs["w"], inputs.get("bias"), padding=(1, 0))
        if "image_shift" in inputs:
            y = y + inputs["image_shift"][:, :, None, None]
        return (y + inputs["residual"] if "residual" in inputs else y,)

    return run
