"""FlashAttention 4: CuTe DSL kernels for Hopper and Blackwell."""

PACKAGE, VERSIONS = "flash-attn-4", ("4.0.0b36",)
CALL = "flash_attn.cute.flash_attn_func(q, k, v)[0]"
ONLY = {"layout": "separate packed_3hd packed_h3d", "lse": "0"}


def build(problem):
    from flash_attn.cute import flash_attn_func

    scale = problem.real("scale") or None
    return lambda t: (flash_attn_func(t["q"], t["k"], t["v"], softmax_scale=scale)[0],)
