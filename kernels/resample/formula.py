"""resample in NumPy: values of a problem's fields and dtype as text, and its inputs in fp64, to its outputs."""

import numpy as np


def resample(values, inputs):
    x = inputs["x"]
    if values["op"] == "nearest_up2":
        return (x.repeat(2, 1).repeat(2, 2),)
    if values["op"] == "concat":
        return (np.concatenate((x, inputs["skip"]), 3),)
    n, h, w, channels = x.shape
    return (x.reshape(n, h // 2, 2, w // 2, 2, channels).mean((2, 4)),)
