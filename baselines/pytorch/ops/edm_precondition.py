"""What stands in front of and behind the network in EDM, as its authors write it: in fp32, whatever the network's dtype."""

import torch

from baselines.pytorch.errors import Unsupported


def roundings(problem, compiled):
    return 1


def make_inputs(problem, dtype, device, generator):
    shape = (problem.integer("batch"), problem.integer("elements"))
    sigma = problem.filled.get("sigma", [])
    if len(sigma) != shape[0]:
        raise Unsupported("the problem's record has no sigmas")
    inputs = {"x": torch.randn(*shape, device=device, generator=generator, dtype=dtype), "sigma": torch.tensor(sigma, device=device).view(-1, 1)}
    if problem.choice("side") == "output":
        inputs["f"] = torch.randn(*shape, device=device, generator=generator, dtype=dtype)
    return inputs


def build(problem):
    data = problem.real("sigma_data")

    def run(inputs):
        x, sigma = inputs["x"].to(torch.float32), inputs["sigma"]
        if "f" in inputs:
            skip = data**2 / (sigma**2 + data**2)
            out = sigma * data / (sigma**2 + data**2).sqrt()
            return ((skip * x + out * inputs["f"].to(torch.float32)).to(inputs["x"].dtype),)
        scale = 1 / (data**2 + sigma**2).sqrt()
        return ((scale * x).to(inputs["x"].dtype), (sigma.log() / 4).flatten())

    return run


def reference(problem, inputs):
    wide = {name: tensor.double() for name, tensor in inputs.items()}
    data, sigma = problem.real("sigma_data"), wide["sigma"]
    deviation = torch.hypot(sigma, torch.full_like(sigma, data))
    if "f" in wide:
        return ((data / deviation) ** 2 * wide["x"] + sigma / deviation * data * wide["f"],)
    return (wide["x"] / deviation, torch.log(sigma).flatten() / 4)
