"""layernorm in NumPy: values of a problem's fields and dtype as text, and its inputs in fp64, to its outputs."""

import numpy as np


def layernorm(values, inputs):
    x = inputs["x"] + inputs.get("residual", 0)
    y = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + float(values["eps"]))
    y = y * inputs.get("gamma", 1) + inputs.get("beta", 0)
    if "scale" in inputs:
        images = y.reshape(len(inputs["scale"]), -1, y.shape[1])
        y = (images * (1 + inputs["scale"][:, None]) + inputs["shift"][:, None]).reshape(y.shape)
    return (x, y) if "residual" in inputs else (y,)
