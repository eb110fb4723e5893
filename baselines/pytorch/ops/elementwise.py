"""The pointwise operations between the large ones, the cast, and the change of layout at a network's ends."""

import math

import torch
import torch.nn.functional as F

from baselines.pytorch.errors import Unsupported

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
# addcmul and silu; sum and product; gelu and product. SiLU and GELU magnify an error before them by up to 1.1.
EAGER_ROUNDINGS = {"silu_fma": 3, "add": 2, "geglu": 3}


def roundings(problem, compiled):
    return 1 if compiled else EAGER_ROUNDINGS.get(problem.choice("op"), 1)


def make_inputs(problem, dtype, device, generator):
    op, n, hw, channels = problem.choice("op"), problem.integer("n"), problem.integer("hw"), problem.integer("channels")
    if op not in RUN:
        raise Unsupported(f"the PyTorch baseline has no operation '{op}'")

    def normal(*shape, mean=0.0, deviation=1.0):
        return (torch.randn(*shape, device=device, generator=generator) * deviation + mean).to(dtype)

    if op == "silu_fma":
        rows = 1 if problem.flag("broadcast") else hw
        return {"a": normal(n, rows, channels, deviation=0.5), "b": normal(n, hw, channels), "c": normal(n, rows, channels, mean=1.0, deviation=0.25)}
    if op == "add":
        return {"a": normal(n, hw, channels), "b": normal(n, hw, channels)}
    if op == "geglu":
        return {"x": normal(n, hw, 2 * channels)}
    return {"x": normal(n, channels, hw) if op == "nchw_to_nhwc" else normal(n, hw, channels)}


def _geglu(inputs, problem):
    value, gate = inputs["x"].chunk(2, dim=-1)
    return value * F.gelu(gate)


def _add(inputs, problem):
    total = inputs["a"] + inputs["b"]
    return total if problem.real("scale") == 1 else total * problem.real("scale")


RUN = {
    "silu_fma": lambda inputs, problem: F.silu(torch.addcmul(inputs["a"], inputs["b"], inputs["c"])),
    "add": _add,
    "geglu": _geglu,
    "relu": lambda inputs, problem: F.relu(inputs["x"]),
    "silu": lambda inputs, problem: F.silu(inputs["x"]),
    "cast": lambda inputs, problem: inputs["x"].to(DTYPES[problem.choice("to")], copy=True),
    "nchw_to_nhwc": lambda inputs, problem: inputs["x"].permute(0, 2, 1).contiguous(),
    "nhwc_to_nchw": lambda inputs, problem: inputs["x"].permute(0, 2, 1).contiguous(),
}


def build(problem):
    function = RUN[problem.choice("op")]
    return lambda inputs: (function(inputs, problem),)


def reference(problem, inputs):
    wide = {name: tensor.double() for name, tensor in inputs.items()}
    op, half = problem.choice("op"), problem.integer("channels")
    if op == "silu_fma":
        v = wide["a"] + wide["b"] * wide["c"]
        return (v / (1 + torch.exp(-v)),)
    if op == "add":
        return ((wide["a"] + wide["b"]) * problem.real("scale"),)
    x = wide["x"]
    if op == "geglu":
        gate = x[..., half:]
        return (x[..., :half] * gate * torch.erfc(-gate / math.sqrt(2)) / 2,)
    if op == "relu":
        return (torch.where(x > 0, x, torch.zeros_like(x)),)
    if op == "silu":
        return (x / (1 + torch.exp(-x)),)
    return (x if op == "cast" else x.transpose(1, 2),)
