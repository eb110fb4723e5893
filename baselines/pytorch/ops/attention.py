"""softmax(Q K^T scale) V by scaled_dot_product_attention, one backend a row; Q, K and V are read in place, by strides."""

import math

import torch
import torch.nn.functional as F

from baselines.pytorch.errors import Unsupported

BACKENDS = {"torch_flash": "FLASH_ATTENTION", "torch_cudnn": "CUDNN_ATTENTION", "torch_efficient": "EFFICIENT_ATTENTION"}
PACKED = {"packed_3hd": -3, "packed_h3d": -2, "packed_hd3": -1}  # the axis of queries, keys and values
CHUNK = 2**27  # logits that the reference holds at a time: 1 GiB in fp64
MOST = 2**34  # logits that it computes, 4 dim FLOPs each: 9 TFLOP of fp64 at 128. A video's self-attention has up to 2**38


def roundings(problem, compiled):
    """The output is rounded once; the op's tolerance already foresees rounded weights."""
    return 1


def scale_of(problem):
    """None is SDPA's own default, 1 / sqrt(dim), as 0 is ours."""
    return problem.real("scale") or None


def arrange(problem, inputs):
    """[batch, seq, heads, dim] each; views of one tensor where the layout is packed."""
    if "qkv" not in inputs:
        return inputs
    return dict(zip("qkv", inputs["qkv"].unbind(PACKED[problem.choice("layout")])))


def sdpa(inputs, scale):
    """[batch, seq, heads, dim] in and out, as the op's; the fused kernels take and leave the transposed view without a copy."""
    q, k, v = (inputs[name].transpose(1, 2) for name in "qkv")
    return (F.scaled_dot_product_attention(q, k, v, scale=scale).transpose(1, 2),)


def build(problem):
    if len(problem.outputs) > 1:
        raise Unsupported("scaled_dot_product_attention does not return the log-sum-exp")
    scale = scale_of(problem)
    return lambda inputs: sdpa(inputs, scale)


def build_variant(problem, variant):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backend, attend = getattr(SDPBackend, BACKENDS[variant]), build(problem)

    def run(inputs):
        try:
            with sdpa_kernel(backend):
                return attend(inputs)
        except RuntimeError as error:
            if "No available kernel" in str(error):
                raise Unsupported(f"PyTorch's {BACKENDS[variant]} backend refuses this problem") from None
            raise

    return run


def judged(problem, outputs):
    """Of more than MOST logits every so many queries: of 2**38 each 16th, so that no tile of 64 is left out."""
    logits = math.prod(problem.integer(name) for name in ("batch", "heads", "seq_q", "seq_kv"))
    return tuple(output[:, :: -(-logits // MOST)] for output in outputs)


def reference(problem, inputs):
    """Of what is judged."""
    return in_parts(problem, {**inputs, "q": judged(problem, (inputs["q"],))[0]})


def in_parts(problem, inputs):
    """In fp64, some images at a time, and of a long one some queries."""
    row, scale, parts = inputs["q"].shape[2] * inputs["k"].shape[1], scale_of(problem), []
    for images in zip(*(inputs[name].split(max(1, CHUNK // (row * inputs["q"].shape[1]))) for name in "qkv")):
        q, k, v = (tensor.double() for tensor in images)
        parts.append(torch.cat([sdpa({"q": some, "k": k, "v": v}, scale)[0] for some in q.split(max(1, CHUNK // row), dim=1)], dim=1))
    return (torch.cat(parts),)
