"""The loss of a denoising network and its gradient: in fp32 whatever the network's dtype, as users cast it for the loss."""

import torch


def build(problem):
    edm, data, scale = problem.choice("weight") == "edm", problem.real("sigma_data"), problem.real("scale")

    def run(inputs):
        y = inputs["y"]
        wide = torch.promote_types(y.dtype, torch.float32)
        difference = y.to(wide) - inputs["target"].to(wide)
        weighted = difference
        if edm:
            sigma = inputs["sigma"][:, None]
            weighted = (sigma**2 + data**2) / (sigma * data) ** 2 * difference
        gradient = weighted * (2 * scale / y.numel())
        return (weighted * difference).mean()[None], gradient.to(y.dtype)

    return run
