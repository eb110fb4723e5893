"""The embedding of a timestep or noise level, and the two-layer perceptron behind it."""

import math

import torch
import torch.nn.functional as F


def roundings(problem, compiled):
    """The op's tolerance foresees a rounding of the embedding, of the hidden layer and of the result. Eager rounds each layer's sum before
    SiLU as well."""
    if problem.integer("hidden") == 0:
        return 1
    return 1 if compiled else 2


def build(problem):
    half, endpoint = problem.integer("channels") // 2, problem.flag("endpoint")
    period, sin_first = problem.real("max_period"), problem.choice("order") == "sin_cos"
    final_silu = problem.flag("final_silu")

    def run(inputs):
        t = inputs["t"]
        if "freqs" in inputs:
            frequencies = 2 * math.pi * inputs["freqs"]
        else:
            exponents = torch.arange(half, device=t.device, dtype=t.dtype) / (half - 1 if endpoint else half)
            frequencies = torch.exp(-math.log(period) * exponents)
        angles = t[:, None] * frequencies
        parts = (torch.sin(angles), torch.cos(angles)) if sin_first else (torch.cos(angles), torch.sin(angles))
        e = torch.cat(parts, dim=1)
        if "w1" not in inputs:
            return (e.to(problem.dtype),)
        e = e.to(inputs["w1"].dtype)
        y = F.linear(F.silu(F.linear(e, inputs["w1"], inputs["b1"])), inputs["w2"], inputs["b2"])
        return (F.silu(y) if final_silu else y,)

    return run
