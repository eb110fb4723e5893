"""Liger's layer norm in Triton; it also writes mean and rstd, as training needs them."""

PACKAGE, VERSIONS = "liger_kernel", ("0.8.",)
CALL = "liger_kernel.ops.LigerLayerNormFunction.apply(x, gamma, beta, eps)"
DTYPES = ("bfloat16", "float16", "float32")
ONLY = {"fusion": "none", "residual": "0", "affine": "1"}


def build(problem):
    from liger_kernel.ops import LigerLayerNormFunction

    eps = problem.real("eps")
    return lambda t: (LigerLayerNormFunction.apply(t["x"], t["gamma"], t["beta"], eps),)
