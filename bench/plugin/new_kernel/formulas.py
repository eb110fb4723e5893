"""What formulas of several ops have in common (kernels/*/formula.py: each op in fp64 NumPy, from the formula in its header).

A formula takes a problem's fields and its dtype as text, and its tensors in fp64. None stands for an output that cannot be foretold (drawn noise).
"""

import math

import numpy as np


def erf(x):
    return np.vectorize(math.erf, otypes=[float])(x)


def silu(x):
    return x / (1 + np.exp(-x))


def gelu(x):
    return x * (1 + erf(x / math.sqrt(2))) / 2


def gelu_tanh(x):
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def activated(act, y):
    return {"none": lambda: y, "silu": lambda: silu(y), "relu": lambda: np.maximum(y, 0), "gelu": lambda: gelu(y),
            "gelu_tanh": lambda: gelu_tanh(y)}[act]()


def heads(values, inputs):
    """q, k and v, each [..., heads, dim]; of a packed tensor taken apart."""
    if "qkv" not in inputs:
        return inputs["q"], inputs["k"], inputs["v"]
    axis = {"packed_3hd": -3, "packed_h3d": -2, "packed_hd3": -1}[values["layout"]]
    return (np.take(inputs["qkv"], part, axis) for part in range(3))


def softmax_product(values, q, k, v):
    """Over the axis before the last but one: [..., sequence, heads, dim]."""
    scale = float(values["scale"]) or 1 / math.sqrt(q.shape[-1])
    s = scale * np.einsum("...ihd,...jhd->...hij", q, k)
    top = s.max(-1, keepdims=True)
    lse = top + np.log(np.exp(s - top).sum(-1, keepdims=True))
    return np.einsum("...hij,...jhd->...ihd", np.exp(s - lse), v), lse[..., 0]
