"""What stands in front of and behind the network in EDM, as its authors write it: in fp32, whatever the network's dtype."""

import torch


def build(problem):
    data, side = problem.real("sigma_data"), problem.choice("side")

    def c_out(sigma):
        return sigma * data / (sigma**2 + data**2).sqrt()

    def run(inputs):
        given = inputs["dd" if side == "gradient" else "x"]
        wide = torch.promote_types(given.dtype, torch.float32)
        x, sigma = given.to(wide), inputs["sigma"][:, None]
        if side == "gradient":
            return ((c_out(sigma) * x).to(given.dtype),)
        if side == "output":
            skip = data**2 / (sigma**2 + data**2)
            return ((skip * x + c_out(sigma) * inputs["f"].to(wide)).to(given.dtype),)
        scale = 1 / (data**2 + sigma**2).sqrt()
        return ((scale * x).to(given.dtype), (sigma.log() / 4).flatten())

    return run
