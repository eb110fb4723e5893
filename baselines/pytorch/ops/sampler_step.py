"""One update of a diffusion sampler, as kernels/sampler_step/coefficients.h writes every solver:

x0          = clamp(model_x x + model m + model_cond m_cond, -limit, limit)
x_next      = x_ x + x0_ x0 + history h + noise z + previous p
history_out = history_x x + history_x0 x0

Which terms there are follows from the problem; the coefficients are fixed numbers of ordinary size instead of a schedule's, because they
change neither the work nor its time. They are Python numbers, as a scheduler of diffusers has them; ours read theirs from device memory.
"""

import torch

from baselines.pytorch.errors import Unsupported

SOLVERS = ("ddpm", "ddim", "edm_euler", "edm_heun", "dpmpp_2m")
MODEL_X, MODEL, MODEL_COND = 0.9, -0.6, -0.4
X, X0, HISTORY, NOISE, HISTORY_X, HISTORY_X0 = 0.7, 0.4, -0.2, 0.3, 0.8, -0.5


def _reads_history(problem):
    solver, step, steps = problem.choice("solver"), problem.integer("step"), problem.integer("steps")
    if solver == "edm_heun":
        return problem.choice("half") == "second"
    return solver == "dpmpp_2m" and 0 < step < steps - 1


def _writes_history(problem):
    solver, step, steps = problem.choice("solver"), problem.integer("step"), problem.integer("steps")
    if solver == "edm_heun":
        return problem.choice("half") == "first" and step < steps - 1
    return solver == "dpmpp_2m" and step < steps - 2


def roundings(problem):
    """Products and sums of the expression below, each rounded by eager PyTorch."""
    return 14 if problem.choice("noise") != "none" else 12


def make_inputs(problem, dtype, device, generator):
    if problem.choice("solver") not in SOLVERS:
        raise Unsupported(f"the PyTorch baseline has no solver '{problem.choice('solver')}'")
    shape = (problem.integer("batch"), problem.integer("elements"))

    def normal(*leading):
        return torch.randn(*leading, *shape, device=device, generator=generator, dtype=dtype)

    inputs = {"x": normal()}
    inputs["model_output"] = normal(2) if problem.real("guidance") != 0 else normal()
    if problem.choice("noise") == "given":
        inputs["noise"] = normal()
    if _reads_history(problem):
        inputs["history"] = normal()
    if problem.real("blend") != 0:
        inputs["previous_frame"] = normal()
    return inputs


def build(problem):
    """The step as a function of (inputs, noise tensor or None)."""
    solver, guided, blend = problem.choice("solver"), problem.real("guidance") != 0, problem.real("blend")
    predicts_x0, clamp = problem.choice("prediction") == "x0", problem.real("clamp")
    drawn, writes_history = problem.choice("noise") == "drawn", _writes_history(problem)

    def step(inputs, noise):
        x, output = inputs["x"], inputs["model_output"]
        model = MODEL * output[0] + MODEL_COND * output[1] if guided else MODEL * output
        x0 = model if predicts_x0 else MODEL_X * x + model
        if clamp > 0:
            x0 = x0.clamp(-clamp, clamp)
        x_next = X * x + X0 * x0
        if "history" in inputs:
            x_next = x_next + HISTORY * inputs["history"]
        if noise is not None:
            x_next = x_next + NOISE * noise
        if blend != 0:
            x_next = (1 - blend) * x_next + blend * inputs["previous_frame"]
        if not writes_history:
            return (x_next,)
        return (x_next, HISTORY_X * x + HISTORY_X0 * x0 if solver == "edm_heun" else x0)

    def run(inputs):
        return step(inputs, torch.randn_like(inputs["x"]) if drawn else inputs.get("noise"))

    run.step = step
    return run


def reference(problem, inputs):
    if problem.choice("noise") == "drawn":
        return None
    wide = {name: tensor.double() for name, tensor in inputs.items()}
    return build(problem).step(wide, wide.get("noise"))


def check(problem, inputs, outputs):
    """Noise that PyTorch draws cannot be foretold: what is left after the deterministic part must be standard normal."""
    wide = {name: tensor.double() for name, tensor in inputs.items()}
    quiet = build(problem).step(wide, None)
    scale = NOISE * (1 - problem.real("blend"))
    noise = ((outputs[0].double() - quiet[0]) / scale).flatten()
    count = noise.numel()
    rounding = torch.finfo(outputs[0].dtype).eps * 16
    mean, deviation = noise.mean().item(), noise.std().item() if count > 1 else 1.0
    if not abs(mean) <= 5 / count**0.5 + rounding:
        return f"the drawn noise has mean {mean:.4g} over {count} elements"
    if not abs(deviation - 1) <= 5 / (2 * count) ** 0.5 + rounding:
        return f"the drawn noise has standard deviation {deviation:.4g} over {count} elements"
    for output, expected in zip(outputs[1:], quiet[1:]):
        if not torch.allclose(output.double(), expected, rtol=rounding, atol=rounding):
            return "history_out is wrong"
    return ""
