"""Whole networks (baselines/pytorch/networks): one denoising call, or a training step, channels-last, in the row's dtype.

Weights are random by bench/pipeline/executor.h's scheme, though not its numbers: either side is verified against itself in fp32.
"""

import math
import os

import torch

from baselines.pytorch import case, networks
from baselines.pytorch.errors import CannotRun, Unsupported
from baselines.pytorch.networks import training

WHOLE = True  # hundreds of kernels: cold times are of a captured graph too, and Inductor compiles with all its workers
SEED = 0
SPREAD = 0.1  # of biases around 0, and of norms' gains around 1


def roundings(problem, compiled):
    """The program's tolerance is of a whole network whose fusions round once. Eager rounds between any two functions, and on a GPU the mean and
    rstd of norms: on the CPU a large network is off by 1.4e-2 of the 2e-2."""
    return 1 if compiled else 2


def build_on(name, device):
    try:
        with torch.device(device):
            network = networks.build(name)
    except CannotRun as error:
        raise Unsupported(str(error)) from None
    return network.to(device)  # diffusers' AlphaBlender makes its parameter on the CPU, whatever the device is


def build_network(name, device, dtype):
    """The network with its random weights: the same numbers in every dtype, up to rounding."""
    network = build_on(name, device)
    generator = torch.Generator(device).manual_seed(SEED)
    tables = {f"{name}.weight" for name, module in network.named_modules() if isinstance(module, torch.nn.Embedding)}
    with torch.no_grad():
        for parameter_name, parameter in network.named_parameters():
            mean, deviation = 0.0, SPREAD
            if parameter_name in tables:  # one of its rows is the result
                deviation = 1.0
            elif parameter.dim() > 1:
                deviation = 1 / math.sqrt(parameter[0].numel())
            elif parameter_name.endswith("weight"):
                mean = 1.0
            parameter.normal_(mean, deviation, generator=generator)
    network = network.eval().requires_grad_(False).to(dtype=dtype)
    for parameter in network.parameters():  # kernels of five dimensions stay as they are: which order serves them best was not measured
        if parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    return network


def make_inputs(problem, device, generator):
    """By the program's names. Pictures and embeddings are in the row's dtype, levels and numbers in fp32."""
    if problem.flag("training"):
        return training.make_inputs(problem, build_network(problem.choice("name"), device, torch.float32), device, generator)
    network = build_network(problem.choice("name"), device, problem.dtype)
    inputs = {"network": network}
    for name, shape in problem.inputs.items():
        if name == "labels":
            labels = 7 * torch.arange(shape[0], device=device) % shape[1]
            inputs[name] = torch.nn.functional.one_hot(labels, shape[1]).to(problem.dtype) if network.one_hot else labels
        else:
            dtype = problem.dtype if name in problem.normal and name not in network.numbers else torch.float32
            value = case.values_of(problem, name, dtype, device, generator)
            inputs[name] = value.movedim(-1, -3) if value.dim() > 3 else value
    return inputs


def build(problem):
    if problem.flag("training"):
        return training.Step(problem.dtype)

    def run(inputs):
        return (inputs["network"](*(inputs[name] for name in problem.inputs)),)

    return run


def prepare_compiler():
    """A network is hundreds of kernels, for which a pool of workers is worth its start."""
    import torch._inductor.config

    torch._inductor.config.compile_threads = min(32, len(os.sched_getaffinity(0)))


def reference(problem, inputs):
    """The same network in fp32, on the inputs as they were rounded."""
    if problem.flag("training"):
        return judged(problem, training.Step(torch.float32)(inputs))
    network = build_network(problem.choice("name"), inputs["x"].device, torch.float32)
    return (network(*(value.float() if value.is_floating_point() else value for value in (inputs[name] for name in problem.inputs))),)


def judged(problem, outputs):
    return training.judged(outputs) if problem.flag("training") else outputs
