"""softmax(Q K^T scale) V by scaled_dot_product_attention, one backend a row; Q, K and V are read in place, by strides."""

import torch
import torch.nn.functional as F

from baselines.pytorch.errors import Unsupported

BACKENDS = {"torch_flash": "FLASH_ATTENTION", "torch_cudnn": "CUDNN_ATTENTION", "torch_efficient": "EFFICIENT_ATTENTION"}
CHUNK = 2**27  # logits that the reference holds at a time: 1 GiB in fp64


def roundings(problem, compiled):
    """The output is rounded once; the op's tolerance already foresees rounded weights."""
    return 1


def scale_of(problem):
    """None is SDPA's own default, 1 / sqrt(dim), as 0 is ours."""
    return problem.real("scale") or None


def projections(problem, tokens, keys, dtype, device, generator):
    """q [*tokens, heads, dim], k and v [*keys, heads, dim]; views of one tensor where the problem's layout is packed."""
    heads, dim, layout = problem.integer("heads"), problem.integer("dim"), problem.choice("layout")

    def normal(*shape):
        return torch.randn(*shape, device=device, generator=generator, dtype=dtype)

    if layout == "separate":
        return normal(*tokens, heads, dim), normal(*keys, heads, dim), normal(*keys, heads, dim)
    if layout == "packed_3hd":
        return normal(*tokens, 3, heads, dim).unbind(-3)
    if layout == "packed_h3d":
        return normal(*tokens, heads, 3, dim).unbind(-2)
    if layout == "packed_hd3":
        return normal(*tokens, heads, dim, 3).unbind(-1)
    raise Unsupported(f"the PyTorch baseline has no layout '{layout}'")


def make_inputs(problem, dtype, device, generator):
    if problem.flag("lse"):
        raise Unsupported("scaled_dot_product_attention does not return the log-sum-exp")
    batch = problem.integer("batch")
    q, k, v = projections(problem, (batch, problem.integer("seq_q")), (batch, problem.integer("seq_kv")), dtype, device, generator)
    return {"q": q, "k": k, "v": v}


def sdpa(inputs, scale):
    """[batch, seq, heads, dim] in and out, as the op's; the fused kernels take and leave the transposed view without a copy."""
    q, k, v = (inputs[name].transpose(1, 2) for name in "qkv")
    return (F.scaled_dot_product_attention(q, k, v, scale=scale).transpose(1, 2),)


def build(problem):
    scale = scale_of(problem)
    return lambda inputs: sdpa(inputs, scale)


def build_variant(problem, variant):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backend, scale = getattr(SDPBackend, BACKENDS[variant]), scale_of(problem)

    def run(inputs):
        try:
            with sdpa_kernel(backend):
                return sdpa(inputs, scale)
        except RuntimeError as error:
            if "No available kernel" in str(error):
                raise Unsupported(f"PyTorch's {BACKENDS[variant]} backend refuses this problem") from None
            raise

    return run


def softmax_product(q, k, v, scale):
    """Plain formulas in fp64, some images at a time; [batch, seq, heads, dim]."""
    batch, seq_q, heads, dim = q.shape
    step = max(1, CHUNK // (heads * seq_q * k.shape[1]))
    parts = []
    for first in range(0, batch, step):
        one, keys, values = (x[first : first + step].double().transpose(1, 2) for x in (q, k, v))
        logits = one @ keys.mT * (scale if scale else dim**-0.5)
        weights = torch.exp(logits - logits.amax(-1, keepdim=True))
        parts.append((weights @ values / weights.sum(-1, keepdim=True)).transpose(1, 2))
    return torch.cat(parts)


def reference(problem, inputs):
    return (softmax_product(inputs["q"], inputs["k"], inputs["v"], scale_of(problem)),)
