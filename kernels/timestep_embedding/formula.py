"""timestep_embedding in NumPy: values of a problem's fields and dtype as text, and its inputs in fp64, to its outputs."""

import math

import numpy as np
from bench.plugin.new_kernel.formulas import silu


def timestep_embedding(values, inputs):
    half = int(values["channels"]) // 2
    steps = np.arange(half) / (half - 1 if values["endpoint"] == "1" else half) if half > 1 else np.zeros(1)
    frequencies = 2 * math.pi * inputs["freqs"] if "freqs" in inputs else float(values["max_period"]) ** -steps
    angles = np.outer(inputs["t"], frequencies)
    parts = [np.cos(angles), np.sin(angles)]
    y = np.concatenate(parts if values["order"] == "cos_sin" else parts[::-1], 1)
    if "w1" in inputs:
        y = silu(y @ inputs["w1"].T + inputs["b1"]) @ inputs["w2"].T + inputs["b2"]
        y = silu(y) if values["final_silu"] == "1" else y
    return (y,)
