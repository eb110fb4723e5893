"""The ops of noisefloor as functions: ``noisefloor.ops.gemm(a, b)``.

Tensors come and go by DLPack: of NumPy and PyTorch on the CPU, where the host variants serve, and of a GPU's framework
in a build with CUDA. `docs/python.md` says what can be given.
"""

from noisefloor import _core, ops
from noisefloor._bench import bench
from noisefloor._plan import Plan, use_plan
from noisefloor._prepared import Prepared, prepare
from noisefloor._signatures import Variant, variants

__version__ = _core.version
__all__ = ["Plan", "Prepared", "Variant", "bench", "capture", "ops", "prepare", "use_plan", "variants"]


def capture():
    """`with noisefloor.capture() as c:` records the calls of a PyTorch program: c.report(), c.problems(), c.unmapped(), c.write(folder)."""
    from noisefloor._capture import Capture  # imports PyTorch

    return Capture()
