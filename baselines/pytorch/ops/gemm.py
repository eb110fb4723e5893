"""D[m,n] = act(scale * A[m,k] B[n,k]^T + bias) (+ residual), as a linear layer and what follows it in a diffusion network."""

import torch
import torch.nn.functional as F

from baselines.pytorch.errors import Unsupported

ACTIVATIONS = {
    "none": lambda x: x,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}


def geglu(x):
    value, gate = x.chunk(2, dim=-1)
    return value * F.gelu(gate)


def _activation(problem):
    name = problem.choice("act")
    if name == "geglu":
        return geglu
    if name not in ACTIVATIONS:
        raise Unsupported(f"the PyTorch baseline has no activation '{name}'")
    return ACTIVATIONS[name]


# The product, the activation; geglu: value, gate, gelu, their product, and twice more because a value of several standard deviations
# magnifies the gate's.
ROUNDINGS = {"none": 1, "silu": 2, "gelu": 2, "gelu_tanh": 2, "geglu": 6}


def roundings(problem):
    return ROUNDINGS[problem.choice("act")] + problem.flag("residual") + (problem.real("scale") != 1)


def make_inputs(problem, dtype, device, generator):
    _activation(problem)
    m, n, k = (problem.integer(name) for name in "mnk")
    rows = 2 * n if problem.choice("act") == "geglu" else n

    def normal(*shape, deviation=1.0):
        return (torch.randn(*shape, device=device, generator=generator) * deviation).to(dtype)

    inputs = {"a": normal(m, k), "b": normal(rows, k, deviation=k**-0.5)}
    if problem.flag("bias"):
        inputs["bias"] = normal(rows)
    if problem.flag("residual"):
        inputs["residual"] = normal(m, n)
    return inputs


def build(problem):
    scale, activation = problem.real("scale"), _activation(problem)

    def run(inputs):
        a, b, bias = inputs["a"], inputs["b"], inputs.get("bias")
        if scale == 1:
            product = F.linear(a, b, bias)
        elif bias is not None:
            product = torch.addmm(bias, a, b.t(), alpha=scale)
        else:
            product = F.linear(a, b) * scale
        result = activation(product)
        return (result + inputs["residual"] if "residual" in inputs else result,)

    return run


def reference(problem, inputs):
    return build(problem)({name: tensor.double() for name, tensor in inputs.items()})
