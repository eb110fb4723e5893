"""A transposed convolution of stride 2, 2x2 or 4x4 with a pad of 1, on channels-last images."""

import torch.nn.functional as F

from baselines.pytorch.ops import behind, function_of, images


def roundings(problem, compiled):
    return behind(compiled, problem.flag("bias"), problem.choice("act") != "none")


def arrange(problem, inputs):
    """Weights [cin, cout, kernel, kernel]."""
    return images({**inputs, "w": inputs["w"].permute(3, 1, 2, 0).contiguous()}, "x", "w")


def build(problem):
    act, pad = function_of(problem), int(problem.integer("kernel") == 4)
    return lambda inputs: (act(F.conv_transpose2d(inputs["x"], inputs["w"], inputs.get("bias"), stride=2, padding=pad)),)
