"""The gradients of layer normalisation with scale and shift behind it, as autograd computes them: each layer's own backward function."""

import torch


def roundings(problem, compiled):
    """The layers' own, and the product in front of the norm's; dgamma and dbeta are sums in the input's dtype, too."""
    return 3 if compiled or problem.choice("fusion") == "none" else 6


def build(problem):
    channels, images, eps, factor = problem.integer("channels"), problem.integer("images"), problem.real("eps"), problem.real("residual_scale")

    def run(inputs):
        x, dy, gamma, beta = inputs["x"], inputs["dy"], inputs.get("gamma"), inputs.get("beta")
        norm, mean, rstd = torch.native_layer_norm(x, (channels,), gamma, beta, eps)
        dn, of_pair = dy, ()
        if "scale" in inputs:
            rows = dy.view(images, -1, channels)
            of_pair = ((rows * norm.view(rows.shape)).sum(1), rows.sum(1))
            dn = (rows * (1 + inputs["scale"][:, None])).view(dy.shape)
        wanted = [True, gamma is not None, gamma is not None]
        dx, *of_affine = torch.ops.aten.native_layer_norm_backward(dn, x, (channels,), mean, rstd, gamma, beta, wanted)
        if "residual" in inputs:
            dx = dx + factor * inputs["residual"]
        wide = torch.promote_types(x.dtype, torch.float32)
        return (dx, *(one.to(wide) for one in of_affine if gamma is not None), *of_pair)

    return run
