"""A transposed convolution of stride 2, 2x2 or 4x4 with a pad of 1, on channels-last images."""

import torch
import torch.nn.functional as F

from baselines.pytorch.ops.conv2d import activation, channels_last, wide_activation


def roundings(problem, compiled):
    behind = [problem.flag("bias"), problem.choice("act") != "none"]
    return 1 + any(behind) if compiled else 1 + sum(behind)


def make_inputs(problem, dtype, device, generator):
    activation(problem)
    torch.backends.cudnn.benchmark = True
    n, h, w, cin, cout, kernel = (problem.integer(name) for name in ("n", "h", "w", "cin", "cout", "kernel"))
    inputs = {
        "x": channels_last((n, cin, h, w), dtype, device, generator),
        "w": channels_last((cin, cout, kernel, kernel), dtype, device, generator, deviation=(kernel * kernel / 4 * cin) ** -0.5),
    }
    if problem.flag("bias"):
        inputs["bias"] = torch.randn(cout, device=device, generator=generator).to(dtype)
    return inputs


def _pad(problem):
    return 1 if problem.integer("kernel") == 4 else 0


def build(problem):
    act, pad = activation(problem), _pad(problem)

    def run(inputs):
        return (act(F.conv_transpose2d(inputs["x"], inputs["w"], inputs.get("bias"), stride=2, padding=pad)),)

    return run


def reference(problem, inputs):
    """Each tap adds every pixel, times its weights, to one output of its own; the rim that the pad cuts off is left out at the end."""
    wide = {name: tensor.double() for name, tensor in inputs.items()}
    x, w, kernel, pad = wide["x"], wide["w"], problem.integer("kernel"), _pad(problem)
    n, _, height, width = x.shape
    y = torch.zeros(n, w.shape[1], 2 * height - 2 + kernel, 2 * width - 2 + kernel, dtype=x.dtype, device=x.device)
    for ky in range(kernel):
        for kx in range(kernel):
            y[:, :, ky : ky + 2 * height - 1 : 2, kx : kx + 2 * width - 1 : 2] += torch.einsum("nchw,co->nohw", x, w[:, :, ky, kx])
    y = y[:, :, pad : pad + 2 * height, pad : pad + 2 * width]
    if "bias" in wide:
        y = y + wide["bias"][:, None, None]
    return (wide_activation(problem, y),)
