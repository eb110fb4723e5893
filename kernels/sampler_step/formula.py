"""sampler_step in NumPy: values of a problem's fields and dtype as text, and its inputs in fp64, to its outputs."""

import numpy as np


def sampler_step(values, inputs):
    """kernels/sampler_step/coefficients.h; drawn noise has a coefficient of 0 in these tests."""
    (model_x, model, model_cond, limit, of_x, of_x0, history, noise, previous, history_x, history_x0, _) = inputs["coefficients"][int(values["step"])]
    x, output = inputs["x"], inputs["model_output"]
    guided = output[0] * model + output[1] * model_cond if output.ndim > x.ndim else output * model
    x0 = np.clip(model_x * x + guided, -limit, limit)
    y = of_x * x + of_x0 * x0 + history * inputs.get("history", 0) + noise * inputs.get("noise", 0) + previous * inputs.get("previous_frame", 0)
    return y, history_x * x + history_x0 * x0  # the second where the problem has it
