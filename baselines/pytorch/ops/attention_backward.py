"""The gradients of scaled_dot_product_attention, from its output and log-sum-exp, as autograd calls its backends: one backend a row."""

import torch

from baselines.pytorch.errors import Unsupported
from baselines.pytorch.ops import attention
from baselines.pytorch.ops.attention import PACKED, scale_of

WIDEST = {"torch_flash": 256, "torch_cudnn": 128}  # head that the backend's backward takes


def roundings(problem, compiled):
    """The op's tolerance already foresees rounded weights."""
    return 1


def arrange(problem, inputs):
    return {**inputs, **attention.arrange(problem, inputs)}


def of_layout(problem, gradients):
    """Of [batch, seq, heads, dim] each, stacked where the layout is packed, as the backward of unbind() does."""
    layout = problem.choice("layout")
    return tuple(gradients) if layout == "separate" else (torch.stack(tuple(gradients), PACKED[layout]),)


def build(problem):
    raise Unsupported("torch.compile leaves a backend's backward as it is: torch_flash, torch_cudnn")


def build_variant(problem, variant):
    dim, lengths, scale = problem.integer("dim"), (problem.integer("seq_q"), problem.integer("seq_kv")), scale_of(problem)
    if problem.dtype not in (torch.bfloat16, torch.float16) or dim % 8 or dim > WIDEST[variant]:
        raise Unsupported(f"{variant} takes bf16 and fp16, and heads of a multiple of 8, up to {WIDEST[variant]}")

    def run(inputs):
        dout, q, k, v, o = (inputs[name].transpose(1, 2) for name in ("dout", "q", "k", "v", "o"))
        lse, seed = inputs["lse"], torch.empty((), dtype=torch.int64, device=q.device)  # of a dropout that is 0: not read
        if variant == "torch_flash":
            found = torch.ops.aten._scaled_dot_product_flash_attention_backward(
                dout, q, k, v, o, lse, None, None, *lengths, 0.0, False, seed, seed, scale=scale)  # fmt: skip
        else:
            found = torch.ops.aten._scaled_dot_product_cudnn_attention_backward(
                dout, q, k, v, o, lse[..., None], seed, seed, None, None, None, *lengths, 0.0, False, scale=scale)  # fmt: skip
        return of_layout(problem, (one.transpose(1, 2) for one in found[:3]))

    return run


def reference(problem, inputs):
    """In fp64, with the weights as a matrix, image by image."""
    scale, parts = scale_of(problem) or problem.integer("dim") ** -0.5, []
    for image in zip(*(inputs[name].split(1) for name in ("q", "k", "v", "o", "dout", "lse"))):
        q, k, v, o, dout = (one.double().transpose(1, 2) for one in image[:5])
        p = torch.exp((q @ k.mT) * scale - image[5].double()[..., None])
        s = scale * p * (dout @ v.mT - (dout * o).sum(-1, keepdim=True))
        parts.append((s @ k, s.mT @ q, p.mT @ dout))
    return of_layout(problem, (torch.cat(gradients).transpose(1, 2) for gradients in zip(*parts)))
