"""What stands in front of and behind the network in EDM, as its authors write it: in fp32, whatever the network's dtype."""

import torch


def roundings(problem, compiled):
    return 1


def build(problem):
    data = problem.real("sigma_data")

    def run(inputs):
        wide = torch.promote_types(inputs["x"].dtype, torch.float32)
        x, sigma = inputs["x"].to(wide), inputs["sigma"][:, None]
        if "f" in inputs:
            skip = data**2 / (sigma**2 + data**2)
            out = sigma * data / (sigma**2 + data**2).sqrt()
            return ((skip * x + out * inputs["f"].to(wide)).to(inputs["x"].dtype),)
        scale = 1 / (data**2 + sigma**2).sqrt()
        return ((scale * x).to(inputs["x"].dtype), (sigma.log() / 4).flatten())

    return run
