"""FlashAttention 4's backward, from the forward pass's output and log-sum-exp; blocks add to dq in any order."""

PACKAGE, VERSIONS = "flash-attn-4", ("4.0.0b36",)
CALL = "flash_attn.cute.interface._flash_attn_bwd(q, k, v, o, dout, lse)"


def build(problem):
    from flash_attn.cute.interface import _flash_attn_bwd

    from baselines.pytorch.ops.attention_backward import of_layout

    scale = problem.real("scale") or None
    return lambda t: of_layout(problem, _flash_attn_bwd(t["q"], t["k"], t["v"], t["o"], t["dout"], t["lse"], softmax_scale=scale)[:3])
