"""conv_transpose2d in NumPy: values of a problem's fields and dtype as text, and its inputs in fp64, to its outputs."""

import numpy as np
from bench.plugin.new_kernel.formulas import activated


def conv_transpose2d(values, inputs):
    """Each tap adds every pixel, times its weights, to an output of its own; the rim is cut off."""
    x, w = inputs["x"], inputs["w"]
    kernel, pad = w.shape[1], int(w.shape[1] == 4)
    n, h, width, _ = x.shape
    y = np.zeros((n, 2 * h - 2 + kernel, 2 * width - 2 + kernel, w.shape[0]))
    for i in range(kernel):
        for j in range(kernel):
            y[:, i : i + 2 * h - 1 : 2, j : j + 2 * width - 1 : 2] += x @ w[:, i, j].T
    return (activated(values["act"], y[:, pad : pad + 2 * h, pad : pad + 2 * width] + inputs.get("bias", 0)),)
