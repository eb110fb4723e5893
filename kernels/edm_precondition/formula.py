"""edm_precondition in NumPy: values of a problem's fields and dtype as text, and its inputs in fp64, to its outputs."""

import numpy as np


def edm_precondition(values, inputs):
    data, sigma = float(values["sigma_data"]), inputs["sigma"][:, None]
    deviation = np.hypot(data, sigma)
    if values["side"] == "input":
        return inputs["x"] / deviation, np.log(inputs["sigma"]) / 4
    return ((data / deviation) ** 2 * inputs["x"] + sigma * data / deviation * inputs["f"],)
