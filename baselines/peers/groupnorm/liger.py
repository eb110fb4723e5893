"""Liger's group norm in Triton, of images in NCHW: they are laid out so outside of its time, as PyTorch's result stays so."""

PACKAGE, VERSIONS = "liger_kernel", ("0.8.",)
CALL = "liger_kernel.ops.LigerGroupNormFunction.apply(x, gamma, beta, channels, groups, eps), x in NCHW"
DTYPES = ("bfloat16", "float16", "float32")
ONLY = {"fusion": "none", "stats": "0", "slab_stats": "none", "coefficients": "0", "skip_channels": "0", "down_w": "0", "fp32_affine": "0"}


def prepare(problem, inputs):
    return {**inputs, "x": inputs["x"].contiguous()}


def build(problem):
    from liger_kernel.ops import LigerGroupNormFunction

    channels, groups, eps = problem.integer("channels"), problem.integer("groups"), problem.real("eps")
    return lambda t: (LigerGroupNormFunction.apply(t["x"], t["gamma"], t["beta"], channels, groups, eps),)
