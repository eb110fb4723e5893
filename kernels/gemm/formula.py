"""gemm in NumPy: values of a problem's fields and dtype as text, and its inputs in fp64, to its outputs."""

from bench.plugin.new_kernel.formulas import activated, gelu


def gemm(values, inputs):
    y = float(values["scale"]) * inputs["a"] @ inputs["b"].T + inputs.get("bias", 0)
    half = int(values["n"])
    y = y[:, :half] * gelu(y[:, half:]) if values["act"] == "geglu" else activated(values["act"], y)
    return (y + inputs.get("residual", 0),)
