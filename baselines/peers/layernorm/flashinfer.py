"""FlashInfer's layer norm."""

from baselines.peers import float32_affine as prepare  # noqa: F401

PACKAGE, VERSIONS = "flashinfer-python", ("0.7.",)
CALL = "flashinfer.norm.layernorm(x, gamma, beta, eps), gamma and beta in fp32"
DTYPES = ("bfloat16",)
ONLY = {"fusion": "none", "residual": "0"}


def build(problem):
    from flashinfer.norm import layernorm

    eps = problem.real("eps")
    return lambda t: (layernorm(t["x"], t["gamma"], t["beta"], eps),)
