"""temporal_attention in NumPy: values of a problem's fields and dtype as text, and its inputs in fp64, to its outputs."""

from bench.plugin.new_kernel.formulas import heads, softmax_product


def temporal_attention(values, inputs):
    q, k, v = (part.swapaxes(1, 2) for part in heads(values, inputs))  # [batch, hw, frames, heads, dim]
    return (softmax_product(values, q, k, v)[0].swapaxes(1, 2),)
