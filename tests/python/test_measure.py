"""What tools/experiments/measure_python.py stands on: the time of a launch from C++."""

import built  # noqa: F401 - first
import noisefloor
import numpy as np
import pytest
from noisefloor import _signatures


def timer_of(op, memory, count):
    return lambda *tensors, **given: _signatures.bound(op).seconds_of_launch(*_signatures.signature(op).bind(tensors, given), memory, count)


def test_a_launch_is_timed_on_the_tensors_of_the_call():
    a, b, out = np.ones((4, 8), np.float32), np.ones((3, 8), np.float32), np.zeros((4, 3), np.float32)
    for count in (1, 5):
        timer = timer_of("gemm", None, count)
        out[:] = np.nan
        assert 0 < timer(a, b, out=out) < 60 and (out == 8).all()
    with pytest.raises(ValueError, match="'count' must be at least 1"):
        _signatures.bound("gemm").seconds_of_launch((a, b, None, None), (None,) * len(_signatures.signature("gemm").keywords), out, None, None, None, None, None, 0)
    shape = (2, 4, 4, 8)
    x, w = np.ones(shape, np.float32), np.ones((8, 3, 3, 8), np.float32)
    handle, y = noisefloor.prepare("conv2d", shape, w), np.zeros(shape, np.float32)
    timer = timer_of("conv2d", handle.memory, 2)
    assert timer(x, w, variant=handle.variant, out=y) > 0 and np.array_equal(y, handle(x))
