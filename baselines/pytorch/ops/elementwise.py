"""The pointwise operations between the large ones, the cast, and the change of layout at a network's ends."""

import torch
import torch.nn.functional as F

from baselines.pytorch.case import DTYPES
from baselines.pytorch.ops import function_of, geglu

# addcmul and silu; sum and product; gelu and product, twice. SiLU and GELU magnify an error before them by up to 1.1.
EAGER_ROUNDINGS = {"silu_fma": 3, "add": 2, "geglu": 3, "geglu_backward": 3}


def roundings(problem, compiled):
    return 1 if compiled else EAGER_ROUNDINGS.get(problem.choice("op"), 1)


def arrange(problem, inputs):
    """A row for each image, where a and c are that."""
    return {name: value[:, None] if value.dim() == 2 else value for name, value in inputs.items()}


def _add(inputs, problem):
    total = inputs["a"] + inputs["b"]
    return total if problem.real("scale") == 1 else total * problem.real("scale")


def _geglu_backward(inputs, problem):
    (value, gate), dy = inputs["x"].chunk(2, dim=-1), inputs["dy"]
    return torch.cat((dy * F.gelu(gate), torch.ops.aten.gelu_backward(dy * value, gate)), dim=-1)


RUN = {
    "silu_fma": lambda inputs, problem: F.silu(torch.addcmul(inputs["a"], inputs["b"], inputs["c"])),
    "add": _add,
    "geglu": lambda inputs, problem: geglu(inputs["x"]),
    "relu": lambda inputs, problem: F.relu(inputs["x"]),
    "silu": lambda inputs, problem: F.silu(inputs["x"]),
    "cast": lambda inputs, problem: inputs["x"].to(torch.float64 if problem.dtype == torch.float64 else DTYPES[problem.choice("to")], copy=True),
    "nchw_to_nhwc": lambda inputs, problem: inputs["x"].permute(0, 2, 1).contiguous(),
    "nhwc_to_nchw": lambda inputs, problem: inputs["x"].permute(0, 2, 1).contiguous(),
    "silu_backward": lambda inputs, problem: torch.ops.aten.silu_backward(inputs["dy"], inputs["x"]),
    "relu_backward": lambda inputs, problem: torch.ops.aten.threshold_backward(inputs["dy"], inputs["x"], 0),
    "gelu_backward": lambda inputs, problem: torch.ops.aten.gelu_backward(inputs["dy"], inputs["x"]),
    "geglu_backward": _geglu_backward,
    "scale": lambda inputs, problem: inputs["x"] * problem.real("scale"),
}


def build(problem):
    function = function_of(problem, "op", RUN)
    return lambda inputs: (function(inputs, problem),)
