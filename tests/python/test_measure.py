"""What tools/experiments/measure_python.py stands on: several launches of a call."""

import built  # noqa: F401 - first
import numpy as np
from noisefloor import _signatures


def test_a_call_may_launch_more_than_once():
    a, b, out = np.ones((4, 8), np.float32), np.ones((3, 8), np.float32), np.zeros((4, 3), np.float32)
    given = _signatures.signature("gemm").bind((a, b), {"out": out})
    assert _signatures.bound("gemm").call(*given, None, 3) is out and (out == 8).all()
