"""Whole networks (baselines/pytorch/networks): one denoising call, channels-last, in the row's dtype.

Weights are random by bench/pipeline/weights.h's scheme, though not its numbers: either side is verified against itself in fp32.
"""

import math
import os

import torch

from baselines.pytorch import networks
from baselines.pytorch.errors import CannotRun, Unsupported

WHOLE = True  # hundreds of kernels: cold times are of a captured graph too, and Inductor compiles with all its workers
SEED = 0
SPREAD = 0.1  # of biases around 0, and of norms' gains around 1


def roundings(problem, compiled):
    """The program's tolerance is of a whole network whose fusions round once. Eager rounds between any two functions, and on a GPU the mean and
    rstd of norms: on the CPU a large network is off by 1.4e-2 of the 2e-2."""
    return 1 if compiled else 2


def build_network(name, device, dtype):
    """The network with its random weights: the same numbers in every dtype, up to rounding."""
    try:
        with torch.device(device):
            network = networks.build(name)
    except CannotRun as error:
        raise Unsupported(str(error)) from None
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
    for parameter in network.parameters():  # Module.to refuses kernels of five dimensions
        if parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    return network


def make_inputs(problem, dtype, device, generator):
    name, batch = problem.choice("name"), problem.integer("batch")
    torch.backends.cudnn.benchmark = True
    network = build_network(name, device, dtype)
    c = network.configuration
    frames = (problem.integer("frames"),) if hasattr(c, "frames") else ()
    x = torch.randn(batch, *frames, problem.integer("height"), problem.integer("width"), c.image_channels, device=device, generator=generator)
    level = next((problem.filled[key] for key in ("timesteps", "sigma") if key in problem.filled), None)
    if level is None or len(level) != batch:
        raise Unsupported("the problem's record has no noise levels")
    labels = 7 * torch.arange(batch, device=device) % c.classes
    if network.one_hot:
        labels = torch.nn.functional.one_hot(labels, c.classes).to(dtype)
    return {"network": network, "x": x.to(dtype).movedim(-1, -3), "level": torch.tensor(level, device=device), "labels": labels}


def build(problem):
    def run(inputs):
        return (inputs["network"](inputs["x"], inputs["level"], inputs["labels"]),)

    return run


def prepare_compiler():
    """A network is hundreds of kernels, for which a pool of workers is worth its start."""
    import torch._inductor.config

    torch._inductor.config.compile_threads = min(32, len(os.sched_getaffinity(0)))


def reference(problem, inputs):
    """The same network in fp32, on the inputs as they were rounded."""
    network = build_network(problem.choice("name"), inputs["x"].device, torch.float32)
    labels = inputs["labels"]
    return (network(inputs["x"].float(), inputs["level"], labels.float() if labels.is_floating_point() else labels),)
