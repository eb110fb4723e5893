"""The gradient of a convolution of channels-last images by its input, as autograd computes it. Behind an upsample that of F.interpolate follows."""

import torch

from baselines.pytorch.ops import behind, images


def roundings(problem, compiled):
    return behind(compiled, problem.flag("upsample"), problem.real("scale") != 1, 2 * problem.flag("residual"))


def arrange(problem, inputs):
    return images(inputs, "dy", "weight", "residual")


def build(problem):
    n, h, w, cin, stride, pad = (problem.integer(name) for name in ("n", "h", "w", "cin", "stride", "pad"))
    pads, times, scale, residual_scale = [pad, 0 if problem.flag("column") else pad], 1 + problem.flag("upsample"), problem.real("scale"), problem.real("residual_scale")

    def run(inputs):
        dy, kernel = inputs["dy"], inputs["weight"]
        x = torch.empty((n, cin, times * h, times * w), dtype=dy.dtype, device=dy.device, memory_format=torch.channels_last)  # its shape alone counts
        mask = [True, False, False]
        dx = torch.ops.aten.convolution_backward(dy, x, kernel, None, [stride] * 2, pads, [1, 1], False, [0, 0], 1, mask)[0]
        if times == 2:
            dx = torch.ops.aten.upsample_nearest2d_backward(dx, [2 * h, 2 * w], [n, cin, h, w])
        if scale != 1:
            dx = scale * dx
        return (dx + residual_scale * inputs["residual"] if "residual" in inputs else dx,)

    return run
