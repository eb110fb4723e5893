"""gemm in NumPy: values of a problem's fields and dtype as text, and its inputs in fp64, to its outputs."""

from bench.plugin.new_kernel.formulas import activated, gelu


def gemm(values, inputs):
    y = float(values["scale"]) * inputs["a"] @ inputs["b"].T + inputs.get("bias", 0)
    if "image_shift" in inputs:
        y = y + inputs["image_shift"].repeat(len(y) // int(values["images"]), 0)
    half = int(values["n"])
    y = y[:, :half] * gelu(y[:, half:]) if values["act"] == "geglu" else activated(values["act"], y)
    part = int(values["part_columns"])
    if part:  # [m, parts, columns of one] with the parts outermost
        y = y.reshape(len(y), -1, part).swapaxes(0, 1)
    y = y + inputs.get("residual", 0)
    return (y + inputs["share"] * (inputs["blend"] - y) if "blend" in inputs else y,)
