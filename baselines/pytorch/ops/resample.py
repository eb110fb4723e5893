"""Changes of resolution, the skip concatenation, and their backward passes, of channels-last activations as PyTorch keeps them: logically
NCHW, in memory NHWC."""

import torch
import torch.nn.functional as F

from baselines.pytorch.ops import images


def roundings(problem, compiled):
    return 1 if problem.real("scale") == 1 or compiled else 2


def arrange(problem, inputs):
    return images(inputs, "x", "skip")


def build(problem):
    op, scale, channels = problem.choice("op"), problem.real("scale"), problem.integer("channels")

    def run(inputs):
        x = inputs["x"]
        if op == "split":
            return tuple(part.contiguous(memory_format=torch.channels_last) for part in (x[:, :channels], x[:, channels:]))
        if op != "concat":
            y = F.interpolate(x, scale_factor=2, mode="nearest") if op == "nearest_up2" else F.avg_pool2d(x, 2)
            return (y if scale == 1 else scale * y,)
        return (torch.cat([x, inputs["skip"]], dim=1),)

    return run
