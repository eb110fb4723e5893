"""The ops that PyTorch has rows for (which: bench/sweep/pytorch.cpp). Each is a module with

build(problem) -> function(inputs) -> tuple of tensors, as a PyTorch user writes it; what eager runs and torch.compile compiles, and, of inputs in
    fp64, what both are held to. May raise Unsupported

and, where it differs from the rest,

roundings(problem, compiled) -> times that a result is rounded into its dtype on the way, the last one included: of eager's, or of what
    Inductor fuses; need not be whole; 1 where it is not there
NORMAL = {name: (mean, standard deviation)} of random inputs, where the program's would not do
arrange(problem, inputs) -> the op's inputs, as the program has them, in the shapes and layouts of a PyTorch user
make_inputs(problem, device, generator) -> these in the place of the program's
build_variant(problem, variant) -> for rows that are neither eager nor compiled; what it returns may raise Unsupported
reference(problem, inputs) -> the result in fp64, of a whole network in fp32; None where it is random
check(problem, inputs, outputs) -> str: what is wrong with a random result, or ""
WHOLE = True, where a call is hundreds of kernels; then also prepare_compiler(), called before torch.compile
"""


import torch.nn.functional as F

from baselines.pytorch.errors import Unsupported


def geglu(x):
    value, gate = x.chunk(2, dim=-1)
    return value * F.gelu(gate)


ACTIVATIONS = {"none": lambda x: x, "silu": F.silu, "relu": F.relu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "geglu": geglu}


def function_of(problem, field="act", functions=ACTIVATIONS):
    name = problem.choice(field)
    if name not in functions:
        raise Unsupported(f"the PyTorch baseline has no {field} '{name}'")
    return functions[name]


def behind(compiled, *steps):
    """Roundings of a library's product or convolution and of what stands behind it: eager's of each step, compiled of all in one kernel."""
    return 1 + (any(steps) if compiled else sum(steps))


def judge_noise(noise, mean_error, deviation_error):
    """What is wrong with what should be standard normal, but for such errors of its mean's and of its deviation; "" if nothing."""
    count = noise.numel()
    mean, deviation = noise.mean().item(), noise.std().item() if count > 1 else 1.0
    if not abs(mean) <= 5 / count**0.5 + mean_error:
        return f"the drawn noise has mean {mean:.4g} over {count} elements"
    if not abs(deviation - 1) <= 5 / (2 * count) ** 0.5 + deviation_error:
        return f"the drawn noise has standard deviation {deviation:.4g} over {count} elements"
    return ""


def images(inputs, *names):
    """Those in the place of [n, h, w, c] as [n, c, h, w], in the same memory: channels-last."""
    return {**inputs, **{name: inputs[name].movedim(-1, 1) for name in names if name in inputs}}
