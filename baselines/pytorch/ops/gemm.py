"""D[m,n] = act(scale * A[m,k] B[n,k]^T + bias (+ image_shift)) (+ residual), or its blend with a tensor, as a linear layer and what follows it in a diffusion network.
In other layouts, or with an fp32 D: a layer's gradients."""

import torch
import torch.nn.functional as F

from baselines.pytorch.ops import behind, function_of

# Eager: the product, the activation; geglu: value, gate, gelu, their product, and twice more because a value of several standard
# deviations magnifies the gate's. Compiled: a library's product, and all that follows it in one kernel.
EAGER_ROUNDINGS = {"none": 1, "silu": 2, "gelu": 2, "gelu_tanh": 2, "geglu": 6}


def roundings(problem, compiled):
    if is_gradient(problem):
        return behind(compiled, problem.real("scale") != 1, problem.flag("bias"), problem.flag("residual"))
    act, scaled = problem.choice("act"), problem.real("scale") != 1 and not problem.flag("bias")
    # Its own, its share's, and one more: the sum before it is rounded where it is up to twice what the blend leaves of it.
    blend = 3 * problem.flag("blend")
    batched = problem.integer("part_columns") > 0 and problem.flag("bias")  # baddbmm's errors are those of a product rounded before its bias
    added = problem.flag("image_shift") + problem.flag("residual") + blend
    if compiled:
        return 3 if act == "geglu" or blend else 2 if act != "none" or added or scaled or batched else 1
    return EAGER_ROUNDINGS[act] + added + scaled + batched


def is_gradient(problem):
    return problem.choice("layout") != "nt" or problem.choice("to") == "fp32"


def gradient(problem):
    layout, scale, wide = problem.choice("layout"), problem.real("scale"), problem.choice("to") == "fp32" and problem.dtype in (torch.bfloat16, torch.float16)

    def run(inputs):
        a, b = inputs["a"].t() if layout == "tn" else inputs["a"], inputs["b"].t() if layout == "nt" else inputs["b"]
        if wide and not a.is_cuda:  # where PyTorch's product has no out_dtype
            a, b = a.float(), b.float()
        product = torch.mm(a, b, out_dtype=torch.float32) if wide and a.is_cuda else torch.mm(a, b)
        product = product if scale == 1 else product * scale
        for name in ("bias", "residual"):
            product = product + inputs[name] if name in inputs else product
        if not problem.flag("row_sums"):
            return (product,)
        return product, a.sum(1, dtype=torch.float32 if problem.dtype != torch.float64 else None) * scale

    return run


def build(problem):
    if is_gradient(problem):
        return gradient(problem)
    scale, activation, part, images = problem.real("scale"), function_of(problem), problem.integer("part_columns"), problem.integer("images")

    def run(inputs):
        a, b, bias = inputs["a"], inputs["b"], inputs.get("bias")
        if part:  # a batched product, whose items share A
            weights = b.view(-1, part, b.shape[1]).mT
            shared = a.expand(len(weights), *a.shape)
            if bias is not None:
                product = torch.baddbmm(bias.view(-1, 1, part), shared, weights, alpha=scale)
            else:
                product = torch.bmm(shared, weights)
                product = product if scale == 1 else product * scale
        elif scale == 1:
            product = F.linear(a, b, bias)
        elif bias is not None:
            product = torch.addmm(bias, a, b.t(), alpha=scale)
        else:
            product = F.linear(a, b) * scale
        if "image_shift" in inputs and part:
            shift = inputs["image_shift"].view(images, -1, 1, part).transpose(0, 1)
            product = (product.view(len(product), images, -1, part) + shift).flatten(1, 2)
        elif "image_shift" in inputs:
            product = (product.view(images, -1, product.shape[1]) + inputs["image_shift"][:, None]).flatten(0, 1)
        result = activation(product)
        result = result + inputs["residual"] if "residual" in inputs else result
        return (torch.lerp(result, inputs["blend"], inputs["share"].to(result.dtype)) if "blend" in inputs else result,)

    return run
