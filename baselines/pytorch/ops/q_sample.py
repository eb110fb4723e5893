"""The forward process: each image of a batch at a noise level of its own, x_t = alpha x0 + sigma z.

The levels are the problem's own. They are cast to the images' dtype, as diffusers does: in fp32 they would make fp32 tensors of the products.
"""

import torch

from baselines.pytorch.case import computed
from baselines.pytorch.ops import judge_noise


def roundings(problem, compiled):
    """Two coefficients, two products and a sum; compiled: the coefficients and the sum."""
    return 3 if compiled else 5


def arrange(problem, inputs):
    levels = inputs.pop("levels")
    return {**inputs, "alpha": levels[:, :1], "sigma": levels[:, 1:]}


def build(problem):
    keep = problem.flag("keep")

    def run(inputs):
        x0 = inputs["x0"]
        noise = inputs["noise"] if "noise" in inputs else torch.randn_like(x0)
        x_t = inputs["alpha"].to(x0.dtype) * x0 + inputs["sigma"].to(x0.dtype) * noise
        return (x_t, noise) if keep else (x_t,)

    return run


def reference(problem, inputs):
    return computed(build, problem, inputs) if "noise" in inputs else None


def check(problem, inputs, outputs):
    """Noise that PyTorch draws cannot be foretold: what was added to the images must be standard normal, and the noise that was kept."""
    x_t = outputs[0]
    if len(outputs) != 1 + problem.flag("keep") or x_t.shape != inputs["x0"].shape:
        return f"{len(outputs)} outputs, the first of shape {tuple(x_t.shape)}"
    noisy = (inputs["sigma"] > 0.2).flatten()  # below that, roundings of the image drown the noise
    if not noisy.any():
        return "" if torch.isfinite(x_t).all() else "an element is not finite"
    alpha, sigma = inputs["alpha"][noisy].double(), inputs["sigma"][noisy].double()
    noise = (x_t[noisy].double() - alpha * inputs["x0"][noisy].double()) / sigma
    error = 5 * torch.finfo(x_t.dtype).eps * (1 + 1 / sigma.min().item())
    if wrong := judge_noise(noise, error / noise.numel() ** 0.5 + error / 10, error**2):
        return wrong
    if problem.flag("keep"):
        difference = (outputs[1][noisy].double() - noise).abs().max().item()
        if not difference <= 7 * error:
            return f"the noise that was kept is not what was added: {difference:.3g} off"
    return ""
