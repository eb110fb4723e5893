"""cuBLASLt's fp8 product as PyTorch has it. Its operands are in e4m3 already, as where the kernel before it leaves them so."""

PACKAGE, VERSIONS = "torch", ("2.",)
CALL = "torch._scaled_mm(a8, b8.t(), a_scale, b_scale, bias=bias, out_dtype=torch.bfloat16, use_fast_accum=True)"
DTYPES = ("bfloat16",)
ONLY = {"act": "none", "residual": "0", "part_columns": "0", "layout": "nt", "to": "same", "image_shift": "0", "blend": "0"}
LOSSY = "operands in e4m3 with one scale a tensor, made outside of its time; sums of fast accumulation"
ALLOWED = {"max": 0.25, "l2": 0.05}  # 2.6 % of each factor


def can_run(problem):
    return "" if problem.integer("n") % 16 == problem.integer("k") % 16 == 0 else "n and k are not multiples of 16"


def prepare(problem, inputs):
    import torch

    scales = {name: inputs[name].abs().max().float() / torch.finfo(torch.float8_e4m3fn).max for name in "ab"}
    made = {name: (inputs[name] / scale).to(torch.float8_e4m3fn) for name, scale in scales.items()}
    return {**inputs, **made, "a_scale": scales["a"] * problem.real("scale"), "b_scale": scales["b"]}


def build(problem):
    import torch

    options = {"out_dtype": problem.dtype, "use_fast_accum": True}
    return lambda t: (torch._scaled_mm(t["a"], t["b"].t(), t["a_scale"], t["b_scale"], bias=t.get("bias"), **options),)
