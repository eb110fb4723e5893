"""The ops as operators of PyTorch, `torch.ops.noisefloor.*`: torch.compile traces through them, and CUDA graphs capture them.

`noisefloor.torch.gemm(a, b)` takes what `noisefloor.ops.gemm` takes, except `out`, `stream` and `plan`. It runs on the current stream, by the
plan of `noisefloor.use_plan`. attention, conv2d, gemm, elementwise, resample, groupnorm and layernorm have gradients in their plain forms; elsewhere a
tensor that requires one is refused unless gradients are off.
"""

from noisefloor._operators import FUNCTIONS, prepare  # noqa: F401
from noisefloor._patch import patch  # noqa: F401

__all__ = [*FUNCTIONS, "patch", "prepare"]
globals().update(FUNCTIONS)
