"""conv3d_temporal in NumPy: values of a problem's fields and dtype as text, and its inputs in fp64, to its outputs."""

import numpy as np


def conv3d_temporal(values, inputs):
    x = np.pad(inputs["x"], ((0, 0), (1, 1), (0, 0), (0, 0)))
    frames = inputs["x"].shape[1]
    y = sum(x[:, tap : tap + frames] @ inputs["w"][:, tap].T for tap in range(3))
    y = y + inputs.get("bias", 0)
    if "image_shift" in inputs:
        y = y + inputs["image_shift"][:, None, None]
    return (y + inputs.get("residual", 0),)
