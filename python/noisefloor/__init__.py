"""The ops of noisefloor as functions: ``noisefloor.ops.gemm(a, b)``.

They take and return tensors of NumPy and PyTorch on the CPU, by the host variants, and in a build with CUDA those of a
GPU's framework. Tensors are passed by DLPack. `docs/python.md` says what can be given.
"""

import os
import sys

from noisefloor import _core, ops
from noisefloor._bench import bench
from noisefloor._plan import Plan, use_plan
from noisefloor._prepared import Prepared, prepare
from noisefloor._signatures import Variant, variants

__version__ = _core.version
__all__ = ["Plan", "Prepared", "Variant", "bench", "capture", "load", "ops", "prepare", "set_programmatic_launch", "use_plan", "variants"]

os.register_at_fork(after_in_child=lambda: _core.after_fork("torch" in sys.modules))


def set_programmatic_launch(on):
    """Lets our kernels start while the kernel before them on their stream ends (CUDA's programmatic dependent launch, sm_90 and newer).

    It applies to the whole process, and to what CUDA graphs capture from then on. The default is True. Returns the value before. Ours wait for what
    they read; a library's kernel behind them that is launched in this way must do so, too (docs/python.md).
    """
    return _core.set_programmatic_launch(on)


def capture():
    """`with noisefloor.capture() as c:` records the calls of a PyTorch program. Read c.report(), c.problems(), c.unmapped(), c.write(folder)."""
    from noisefloor._capture import Capture  # imports PyTorch

    return Capture()


def load(run):
    """Returns the rows of a run folder as a pandas frame with its columns' units. A notebook shows it as a table, with its roofline."""
    try:
        from noisefloor import _results
    except ImportError as error:
        if error.name != "pandas":
            raise
        raise ImportError("noisefloor.load needs pandas: pip install pandas (and matplotlib, for rooflines)", name="pandas") from None
    return _results.load(run)
