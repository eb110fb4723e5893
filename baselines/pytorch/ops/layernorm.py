"""Layer normalisation of rows of channels, with the residual sum in front of it and scale and shift behind it."""

import torch.nn.functional as F


def roundings(problem, compiled):
    """The sum is rounded before it is normalised, at a mean of twice its deviation: Inductor stores it as an output, and may normalise what it stored.
    Eager's scale and shift round three times; Inductor fuses them."""
    return 1 + 5 * problem.flag("residual") + 3 * (problem.choice("fusion") == "scale_shift" and not compiled)


def build(problem):
    channels, images, eps = problem.integer("channels"), problem.integer("images"), problem.real("eps")

    def run(inputs):
        x = inputs["x"]
        if "residual" in inputs:
            x = x + inputs["residual"]
        y = F.layer_norm(x, (channels,), inputs.get("gamma"), inputs.get("beta"), eps)
        if "scale" in inputs:
            y = (y.view(images, -1, channels) * (1 + inputs["scale"][:, None]) + inputs["shift"][:, None]).view(-1, channels)
        return (x, y) if "residual" in inputs else (y,)

    return run
