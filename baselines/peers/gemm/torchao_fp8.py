"""torchao's fp8 linear layer under torch.compile: weights are quantised once, activations in its time."""

PACKAGE, VERSIONS = "torchao", ("0.18.",)
CALL = "torchao.quantization.quantize_(linear, Float8DynamicActivationFloat8WeightConfig(granularity=PerRow())); torch.compile(linear)(a)"
DTYPES = ("bfloat16",)
ONLY = {"act": "none", "scale": "1", "residual": "0", "part_columns": "0", "layout": "nt", "to": "same", "image_shift": "0", "blend": "0"}
LOSSY = "operands in e4m3 with one scale a row"
ALLOWED = {"max": 0.25, "l2": 0.05}  # 2.6 % of each factor


def prepare(problem, inputs):
    import torch
    from torchao.quantization import Float8DynamicActivationFloat8WeightConfig, PerRow, quantize_

    linear = torch.nn.Linear(problem.integer("k"), problem.integer("n"), "bias" in inputs, inputs["b"].device, problem.dtype)
    for mine, name in zip(linear.parameters(), ("b", "bias")):
        mine.data.copy_(inputs[name])
    quantize_(linear, Float8DynamicActivationFloat8WeightConfig(granularity=PerRow()))
    return {"a": inputs["a"], "linear": torch.compile(linear, dynamic=False)}


def build(problem):
    return lambda t: (t["linear"](t["a"]),)
