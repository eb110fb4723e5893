"""The ops that PyTorch has rows for (which: bench/sweep/pytorch.cpp). Each is a module with

roundings(problem, compiled) -> times that a result is rounded into its dtype on the way, the last one included: of eager's, or of what
    Inductor fuses; need not be whole
make_inputs(problem, dtype, device, generator) -> dict of tensors; raises Unsupported
build(problem) -> function(inputs) -> tuple of tensors, as a PyTorch user writes it; what eager runs and torch.compile compiles
build_variant(problem, variant) -> the same, for the rows of an op that are neither eager nor compiled; may raise Unsupported when
    called
reference(problem, inputs) -> the result in fp64 from plain formulas of its own, not from build's (of a whole network: its own in fp32); None
    where it is random
check(problem, inputs, outputs) -> str: what is wrong with a random result, or ""  (only where reference gives None)
WHOLE = True, where a call is hundreds of kernels; then also prepare_compiler(), called before torch.compile
"""
