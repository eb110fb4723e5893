"""groupnorm in NumPy: values of a problem's fields and dtype as text, and its inputs in fp64, to its outputs."""

import numpy as np
from bench.plugin.new_kernel.formulas import silu


def group_statistics(values, inputs):
    """Mean and variance of [n, groups], of x or of its slabs' statistics."""
    n, hw, channels, groups = (int(values[name]) for name in ("n", "hw", "channels", "groups"))
    if "slab_mean" not in inputs:
        grouped = inputs["x"].reshape(n, hw, groups, -1)
        return grouped.mean((1, 3)), grouped.var((1, 3))
    quarters = 4 if values["slab_stats"] == "quarters" else 1
    slabs = [min(64, hw // quarters - first) for _ in range(quarters) for first in range(0, hw // quarters, 64)]
    rows = np.array(slabs, float)[:, None, None]
    means, m2 = (inputs[name].reshape(n, len(slabs), groups, -1) for name in ("slab_mean", "slab_m2"))
    count = hw * channels // groups
    mean = (rows * means).sum((1, 3)) / count
    return mean, (m2 + rows * (means - mean[:, None, :, None]) ** 2).sum((1, 3)) / count


def halved(values, x):
    """The means of 2x2 blocks of [n, pixels, channels], of an image whose rows have down_w pixels."""
    n, _, channels = x.shape
    return x.reshape(n, -1, 2, int(values["down_w"]) // 2, 2, channels).mean((2, 4)).reshape(n, -1, channels)


def groupnorm(values, inputs):
    if "skip" in inputs:
        inputs = {**inputs, "x": np.concatenate((inputs["x"], inputs["skip"]), 2)}
    mean, variance = group_statistics(values, inputs)
    rstd = 1 / np.sqrt(variance + float(values["eps"]))
    wide = [np.repeat(part, int(values["channels"]) // mean.shape[1], 1)[:, None] for part in (mean, rstd)]
    a = wide[1] * inputs["gamma"]
    b = inputs["beta"] - wide[0] * a
    if values["fusion"] == "silu+ss":
        pair = np.split(inputs["scale_shift"], 2, 1) if "scale_shift" in inputs else (inputs["scale"], inputs["shift"])
        a, b = a * (1 + pair[0][:, None]), b * (1 + pair[0][:, None]) + pair[1][:, None]
    if values["coefficients"] == "1":
        y = np.concatenate((a, b), 1)
    else:
        y = inputs["x"] * a + b
        y = y if values["fusion"] == "none" else silu(y)
    outputs = (y,) if values["down_w"] == "0" else (halved(values, y), halved(values, inputs["x"]))
    return (*outputs, mean, rstd) if values["stats"] == "1" else outputs
