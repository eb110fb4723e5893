"""Layer normalisation of rows of channels, with the residual sum in front of it and scale and shift behind it."""

import torch
import torch.nn.functional as F


def roundings(problem, compiled):
    """The sum is rounded before it is normalised, at a mean of twice its deviation: Inductor stores it as an output, and may normalise what it stored.
    Eager's scale and shift round three times; Inductor fuses them."""
    return 1 + 5 * problem.flag("residual") + 3 * (problem.choice("fusion") == "scale_shift" and not compiled)


def make_inputs(problem, dtype, device, generator):
    rows, channels, images = (problem.integer(name) for name in ("rows", "channels", "images"))

    def normal(*shape, mean=0.0, deviation=1.0):
        return (torch.randn(*shape, device=device, generator=generator) * deviation + mean).to(dtype)

    inputs = {"x": normal(rows, channels, mean=3.0)}
    if problem.flag("residual"):
        inputs["residual"] = normal(rows, channels)
    if problem.flag("affine"):
        inputs["gamma"] = normal(channels, mean=1.0, deviation=0.25)
        inputs["beta"] = normal(channels, deviation=0.25)
    if problem.choice("fusion") == "scale_shift":
        inputs["scale"] = normal(images, 1, channels, deviation=0.25)
        inputs["shift"] = normal(images, 1, channels, deviation=0.25)
    return inputs


def build(problem):
    channels, images, eps = problem.integer("channels"), problem.integer("images"), problem.real("eps")

    def run(inputs):
        x = inputs["x"]
        if "residual" in inputs:
            x = x + inputs["residual"]
        y = F.layer_norm(x, (channels,), inputs.get("gamma"), inputs.get("beta"), eps)
        if "scale" in inputs:
            y = (y.view(images, -1, channels) * (1 + inputs["scale"]) + inputs["shift"]).view(-1, channels)
        return (x, y) if "residual" in inputs else (y,)

    return run


def reference(problem, inputs):
    wide = {name: tensor.double() for name, tensor in inputs.items()}
    x = wide["x"] + wide["residual"] if "residual" in wide else wide["x"]
    variance, mean = torch.var_mean(x, dim=1, correction=0, keepdim=True)
    y = (x - mean) / torch.sqrt(variance + problem.real("eps"))
    if "gamma" in wide:
        y = y * wide["gamma"] + wide["beta"]
    if "scale" in wide:
        per_image = (problem.integer("images"), -1, problem.integer("channels"))
        y = (y.reshape(per_image) * (1 + wide["scale"]) + wide["shift"]).reshape(x.shape)
    return (x, y) if "residual" in wide else (y,)
