"""One update of a diffusion sampler, as kernels/sampler_step/coefficients.h writes every solver:

x0          = clamp(model_x x + model m + model_cond m_cond, -limit, limit)
x_next      = x_ x + x0_ x0 + history h + noise z + previous p
history_out = history_x x + history_x0 x0

The coefficients are the problem's own: the row of its step, of the table that the program exports. Here they are Python numbers, as a
scheduler of diffusers has them; ours read theirs from device memory.
"""

import math
from collections import namedtuple
from dataclasses import replace

import torch

from baselines.pytorch.case import computed
from baselines.pytorch.ops import judge_noise

# CoefficientRow of coefficients.h, in its order; x_ and x0_ are those of x_next.
Coefficients = namedtuple("Coefficients", "model_x model model_cond limit x_ x0_ history noise previous history_x history_x0 unused")


def coefficients(problem):
    length, step = len(Coefficients._fields), problem.integer("step")
    return Coefficients(*problem.filled["coefficients"][step * length : (step + 1) * length])


# Which tensors a solver's step has, the problem's record says.
def _reads_history(problem):
    return "history" in problem.normal


def _writes_history(problem):
    return "history_out" in problem.outputs


def _deviation(problem):
    return problem.normal.get("x", (0, 1))[1]


def roundings(problem, compiled):
    """Inductor fuses the step into one kernel in fp32. Eager rounds every product and sum: each counts by the square of its root mean square
    in the result, relative to the result's own, since independent errors add in squares. One more, because a coefficient within an ulp of 1
    rounds every element of its product the same way, and the sum behind it once more."""
    if compiled:
        return 1
    c, deviation = coefficients(problem), _deviation(problem)
    guided, predicts_x0 = problem.real("guidance") != 0, problem.choice("prediction") == "x0"

    def rounded(products):
        """(squares of what is rounded, square of the sum), of a sum of independent products taken from left to right."""
        squares = [product**2 for product in products]
        return sum(squares) + sum(sum(squares[: end + 1]) for end in range(1, len(squares))), sum(squares)

    model, model_square = rounded([c.model] + [c.model_cond] * guided)
    if predicts_x0 and not guided:
        model = 0  # taken as it is
    x0_square = model_square + (0 if predicts_x0 else (c.model_x * deviation) ** 2)
    inner = model + (0 if predicts_x0 else (c.model_x * deviation) ** 2 + x0_square)

    def result(of_x, of_x0, others):
        """x0 holds x and the model's output, so the sum of both terms is smaller than they are."""
        of_model = (of_x0 * math.sqrt(model_square)) ** 2
        together = ((of_x + (0 if predicts_x0 else of_x0 * c.model_x)) * deviation) ** 2 + of_model
        squares, total = (of_x * deviation) ** 2 + of_x0**2 * (x0_square + inner) + together, together
        for other in others:
            total += other**2
            squares += other**2 + total
        return squares / total if total > 0 else 1

    counts = [result(c.x_, c.x0_, [c.history] * _reads_history(problem) + [c.noise] * (problem.choice("noise") != "none")
                     + [c.previous] * (problem.real("blend") != 0))]
    if _writes_history(problem):
        counts.append(result(c.history_x, c.history_x0, []))
    return 1 + max(counts)


def arrange(problem, inputs):
    return {name: value for name, value in inputs.items() if name != "coefficients"}


def build(problem):
    c = coefficients(problem)
    guided, predicts_x0 = problem.real("guidance") != 0, problem.choice("prediction") == "x0"
    drawn, writes_history, keeps_x0 = problem.choice("noise") == "drawn", _writes_history(problem), (c.history_x, c.history_x0) == (0, 1)

    def run(inputs):
        x, output = inputs["x"], inputs["model_output"]
        x0 = c.model * output[0] + c.model_cond * output[1] if guided else output if predicts_x0 else c.model * output
        if not predicts_x0:
            x0 = c.model_x * x + x0
        if math.isfinite(c.limit):
            x0 = x0.clamp(-c.limit, c.limit)
        x_next = c.x_ * x + c.x0_ * x0
        if "history" in inputs:
            x_next = x_next + c.history * inputs["history"]
        noise = torch.randn_like(x) if drawn else inputs.get("noise")
        if noise is not None:
            x_next = x_next + c.noise * noise
        if "previous_frame" in inputs:
            x_next = x_next + c.previous * inputs["previous_frame"]
        if not writes_history:
            return (x_next,)
        return (x_next, x0 if keeps_x0 else c.history_x * x + c.history_x0 * x0)

    return run


def reference(problem, inputs):
    return None if problem.choice("noise") == "drawn" and coefficients(problem).noise != 0 else computed(build, problem, inputs)


def check(problem, inputs, outputs):
    """Noise that PyTorch draws cannot be foretold: what is left after the deterministic part must be standard normal, and its errors of
    rounding are small beside it."""
    quiet, = computed(build, replace(problem, fields={**problem.fields, "noise": "none"}), inputs)  # the solvers that draw noise keep no history
    if len(outputs) != 1 or outputs[0].shape != quiet.shape:
        return f"{len(outputs)} outputs, the first of shape {tuple(outputs[0].shape)}, instead of one of {tuple(quiet.shape)}"
    scale = coefficients(problem).noise
    noise = (outputs[0].double() - quiet) / scale
    size = math.sqrt(quiet.square().mean().item() + scale**2)
    error = torch.finfo(outputs[0].dtype).eps / 2 * math.sqrt(roundings(problem, compiled=False)) * size / abs(scale)
    if wrong := judge_noise(noise, 5 * error / noise.numel() ** 0.5, error**2):
        return wrong
    largest = noise.abs().max().item()
    if not largest <= 7 + 7 * error:  # 7 standard deviations: once in 4e11
        return f"the drawn noise has an element of {largest:.3g} standard deviations"
    return ""
