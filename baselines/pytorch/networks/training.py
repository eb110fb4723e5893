"""A training step of a network as PyTorch is trained fastest: bf16 by autocast over fp32 parameters, channels-last, fused AdamW, a moving average of
the weights; compiled, also with Inductor's choice of layouts. The batch is drawn, and its noise added, before.

The learning rate is 0: every step finds the same parameters, so that what it leaves can be judged.
"""

from concurrent.futures import ThreadPoolExecutor

import torch

from baselines.pytorch import case
from baselines.pytorch.errors import Unsupported
from baselines.pytorch.networks import edm

KEPT = 0.99  # of the average, in a step
TIMESTEPS = 1000
LAYOUTS = "force_layout_optimization"  # else Inductor copies between its layouts and cuDNN's in every convolution's gradients


def make_inputs(problem, network, device, generator):
    """`network` has its parameters in fp32."""
    if problem.dtype not in (torch.bfloat16, torch.float32):
        raise Unsupported(f"training in {problem.dtype}: the dtypes are bf16 and fp32")
    parameters = list(network.requires_grad_(True).parameters())
    images = case.values_of(problem, "images", torch.float32, device, generator)
    if problem.integer("frames") > 1:  # which stand below each other
        images = images.unflatten(1, (problem.integer("frames"), -1))
    noise, n = torch.randn(images.shape, device=device, generator=generator).movedim(-1, -3), len(images)
    x0 = images.movedim(-1, -3)
    inputs = {"network": network, "average": [parameter.detach().clone() for parameter in parameters],
              "optimizer": torch.optim.AdamW(parameters, lr=torch.zeros((), device=device), fused=True, capturable=device.type == "cuda")}
    if hasattr(network, "sigma_data"):
        level = torch.exp(1.2 * torch.randn(n, device=device, generator=generator) - 1.2)
        inputs |= {"x": x0 + level.reshape(-1, *[1] * (x0.dim() - 1)) * noise, "target": x0, "level": level}
    else:
        inputs |= {"x": 0.5**0.5 * (x0 + noise), "target": noise, "level": torch.randint(TIMESTEPS, (n,), device=device, generator=generator).float()}
    if "labels" in problem.inputs:
        labels = case.values_of(problem, "labels", torch.int64, device, generator)
        inputs["labels"] = torch.nn.functional.one_hot(labels, edm.CLASSES).float() if network.one_hot else labels
    return inputs


def loss_of(inputs, dtype):
    network, target = inputs["network"], inputs["target"]
    level = inputs["level"]
    labels = (inputs["labels"],) if "labels" in inputs else ()
    with torch.autocast(target.device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
        output = network(inputs["x"], level, *labels)
    squares = (output.to(target.dtype)[:, : target.shape[1]] - target) ** 2
    if hasattr(network, "sigma_data"):
        data = network.sigma_data
        squares = ((level**2 + data**2) / (level * data) ** 2).reshape(-1, *[1] * (squares.dim() - 1)) * squares
    return squares.mean()


def backward(loss, stream):
    """In this thread, and not in autograd's."""
    with torch.autograd.set_multithreading_enabled(False), torch.cuda.stream(stream):
        loss.backward()


class Step:
    """Its gradients are computed in a thread of its own. PyTorch keeps cuDNN's plans by thread, and attention's backward plan by the strides of q, k
    and v alone (2.11): of eager and compiled steps, which lay the gradient of attention's output in different ways, the second one of a process
    would take the first one's plan, and find wrong gradients."""

    def __init__(self, dtype):
        self.dtype, self.loss, self.thread = dtype, loss_of, ThreadPoolExecutor(1)

    def compile_parts(self, mode, fullgraph):
        """Forward and loss; autograd's graph behind them is compiled with them."""
        import torch._inductor.config

        options = torch._inductor.list_mode_options(mode)
        if hasattr(torch._inductor.config, LAYOUTS):
            options = {**options, LAYOUTS: True}
        self.loss = torch.compile(loss_of, options=options, dynamic=False, fullgraph=fullgraph)
        return self

    def __call__(self, inputs):
        optimizer, parameters = inputs["optimizer"], inputs["optimizer"].param_groups[0]["params"]
        read = {name: value for name, value in inputs.items() if name not in ("optimizer", "average")}
        with torch.enable_grad():
            loss = self.loss(read, self.dtype)
            optimizer.zero_grad(set_to_none=True)
            self.thread.submit(backward, loss, torch.cuda.current_stream() if loss.is_cuda else None).result()
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(inputs["average"], [parameter.detach() for parameter in parameters], 1 - KEPT)
        return (loss.detach(), *(parameter.grad for parameter in parameters if parameter.grad is not None))


def judged(outputs):
    """The loss, and all gradients as one: some are zero but for rounding."""
    return outputs[0], torch.cat([gradient.flatten() for gradient in outputs[1:]])
