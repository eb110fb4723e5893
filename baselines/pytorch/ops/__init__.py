"""The ops that PyTorch has rows for (which: bench/sweep/pytorch.cpp). Each is a module with

roundings(problem, compiled) -> times that a result is rounded into its dtype on the way, the last one included: of eager's, or of what
    Inductor fuses; need not be whole
build(problem) -> function(inputs) -> tuple of tensors, as a PyTorch user writes it; what eager runs and torch.compile compiles, and, of inputs in
    fp64, what both are held to. May raise Unsupported

and, where it differs from the rest,

NORMAL = {name: (mean, standard deviation)} of random inputs, where the program's would not do
arrange(problem, inputs) -> the op's inputs, as the program has them, in the shapes and layouts of a PyTorch user
make_inputs(problem, device, generator) -> these in the place of the program's
build_variant(problem, variant) -> for rows that are neither eager nor compiled; what it returns may raise Unsupported
reference(problem, inputs) -> the result in fp64, of a whole network in fp32; None where it is random
check(problem, inputs, outputs) -> str: what is wrong with a random result, or ""
WHOLE = True, where a call is hundreds of kernels; then also prepare_compiler(), called before torch.compile
"""


def images(inputs, *names):
    """Those in the place of [n, h, w, c] as [n, c, h, w], in the same memory: channels-last."""
    return {**inputs, **{name: inputs[name].movedim(-1, 1) for name in names if name in inputs}}
