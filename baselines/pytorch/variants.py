"""Which rows each op has. Knows nothing of PyTorch."""

from pathlib import Path

COMMON = ("torch_eager", "torch_compile")
# One row per backend of scaled_dot_product_attention, which would otherwise choose one of them by itself.
SDPA = ("torch_flash", "torch_cudnn", "torch_efficient")

SPECIAL = {"attention": SDPA, "temporal_attention": SDPA}

# An op is a file of ops/.
OF_OP = {path.stem: SPECIAL.get(path.stem, COMMON) for path in sorted((Path(__file__).parent / "ops").glob("[a-z]*.py"))}
OPS = tuple(OF_OP)
VARIANTS = (*COMMON, *SDPA)
