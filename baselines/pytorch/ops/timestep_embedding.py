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


def make_inputs(problem, dtype, device, generator):
    batch, channels, hidden = (problem.integer(name) for name in ("batch", "channels", "hidden"))

    def normal(*shape, mean=0.0, deviation=1.0):
        return torch.randn(*shape, device=device, generator=generator) * deviation + mean

    mean, deviation = problem.normal.get("t", (0, 1))
    inputs = {"t": normal(batch, mean=mean, deviation=deviation)}
    if problem.choice("kind") == "fourier":
        inputs["freqs"] = normal(channels // 2, deviation=problem.normal.get("freqs", (0, 1))[1])
    if hidden:
        inputs["w1"] = normal(hidden, channels, deviation=channels**-0.5).to(dtype)
        inputs["b1"] = normal(hidden, deviation=0.25).to(dtype)
        inputs["w2"] = normal(hidden, hidden, deviation=hidden**-0.5).to(dtype)
        inputs["b2"] = normal(hidden, deviation=0.25).to(dtype)
    else:
        inputs["like"] = torch.empty(0, device=device, dtype=dtype)  # names the result's dtype
    return inputs


def build(problem):
    half, endpoint = problem.integer("channels") // 2, problem.flag("endpoint")
    period, sin_first = problem.real("max_period"), problem.choice("order") == "sin_cos"
    final_silu = problem.flag("final_silu")

    def run(inputs):
        t = inputs["t"]
        if "freqs" in inputs:
            frequencies = 2 * math.pi * inputs["freqs"]
        else:
            exponents = torch.arange(half, device=t.device, dtype=torch.float32) / (half - 1 if endpoint else half)
            frequencies = torch.exp(-math.log(period) * exponents)
        angles = t[:, None] * frequencies
        parts = (torch.sin(angles), torch.cos(angles)) if sin_first else (torch.cos(angles), torch.sin(angles))
        e = torch.cat(parts, dim=1)
        if "w1" not in inputs:
            return (e.to(inputs["like"].dtype),)
        e = e.to(inputs["w1"].dtype)
        y = F.linear(F.silu(F.linear(e, inputs["w1"], inputs["b1"])), inputs["w2"], inputs["b2"])
        return (F.silu(y) if final_silu else y,)

    return run


def reference(problem, inputs):
    wide = {name: tensor.double() for name, tensor in inputs.items()}
    half = problem.integer("channels") // 2

    def silu(x):
        return x / (1 + torch.exp(-x))

    if "freqs" in wide:
        frequencies = 2 * math.pi * wide["freqs"]
    else:
        last = half - 1 if problem.flag("endpoint") else half
        frequencies = torch.tensor([problem.real("max_period") ** (-k / last) for k in range(half)], dtype=torch.float64, device=wide["t"].device)
    angles = torch.outer(wide["t"], frequencies)
    e = torch.empty(angles.shape[0], 2 * half, dtype=torch.float64, device=angles.device)
    first, second = (torch.sin, torch.cos) if problem.choice("order") == "sin_cos" else (torch.cos, torch.sin)
    e[:, :half], e[:, half:] = first(angles), second(angles)
    if "w1" not in wide:
        return (e,)
    y = silu(e @ wide["w1"].T + wide["b1"]) @ wide["w2"].T + wide["b2"]
    return (silu(y) if problem.flag("final_silu") else y,)
