"""A transposed convolution of stride 2, 2x2 or 4x4 with a pad of 1, on channels-last images."""

import torch.nn.functional as F

from baselines.pytorch.ops import images
from baselines.pytorch.ops.conv2d import activation


def roundings(problem, compiled):
    behind = [problem.flag("bias"), problem.choice("act") != "none"]
    return 1 + any(behind) if compiled else 1 + sum(behind)


def arrange(problem, inputs):
    """Weights [cin, cout, kernel, kernel]."""
    return images({**inputs, "w": inputs["w"].permute(3, 1, 2, 0).contiguous()}, "x", "w")


def build(problem):
    act, pad = activation(problem), int(problem.integer("kernel") == 4)
    return lambda inputs: (act(F.conv_transpose2d(inputs["x"], inputs["w"], inputs.get("bias"), stride=2, padding=pad)),)
