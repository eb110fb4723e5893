"""The gradients of a convolution of channels-last images by its weights and biases, as autograd computes them.

PyTorch has them in the dtype of the images; they are then cast to fp32, as a training step with fp32 masters does."""

import torch
import torch.nn.functional as F

from baselines.pytorch.ops import images


def roundings(problem, compiled):
    return 1 + (problem.flag("image_shift") and problem.real("scale") != 1 and not compiled)


def arrange(problem, inputs):
    return images(inputs, "x", "dy")


def build(problem):
    cin, cout, kernel, stride, pad = (problem.integer(name) for name in ("cin", "cout", "kernel", "stride", "pad"))
    kernel_w, pad_w = (1, 0) if problem.flag("column") else (kernel, pad)
    bias, shift, upsample, scale = problem.flag("bias"), problem.flag("image_shift"), problem.flag("upsample"), problem.real("scale")

    def run(inputs):
        x, dy = inputs["x"], inputs["dy"]
        if upsample:
            x = F.interpolate(x, scale_factor=2, mode="nearest")
        wide = torch.promote_types(x.dtype, torch.float32)
        w = torch.empty((cout, cin, kernel, kernel_w), dtype=x.dtype, device=x.device, memory_format=torch.channels_last)  # its shape alone counts
        mask = [False, True, bias]
        _, dw, dbias = torch.ops.aten.convolution_backward(dy, x, w, [cout] if bias else None, [stride] * 2, [pad, pad_w], [1, 1], False, [0, 0], 1, mask)
        made = (dw.to(wide), *([dbias.to(wide)] if bias else []), *([dy.sum((2, 3))] if shift else []))
        return made if scale == 1 else tuple(scale * one for one in made)

    return run
