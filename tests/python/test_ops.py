"""Every op in every dtype through Python, against its oracle on random problems, by the op's own tolerance. test_references.py holds oracles to PyTorch."""

import built  # noqa: F401 - first
import noisefloor
import numpy as np
import pytest
import random_calls
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

# Derandomized: what CI draws is always the same. No deadline, as the machine may be busy.
SETTINGS = settings(max_examples=6, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("dtype", random_calls.DTYPES)
@pytest.mark.parametrize("op", random_calls.OPS)
@SETTINGS
@given(seed=st.integers(0, 2**32))
def test_an_op_is_right(op, dtype, seed):
    for which in range(6):
        hold_to_the_reference(op, dtype, *random_calls.call_of(op, seed, dtype, which))


def hold_to_the_reference(op, dtype, values, inputs, fields):
    before = {name: tensor.copy() for name, tensor in inputs.items()}
    results = random_calls.outcome(getattr(noisefloor.ops, op), op, inputs, fields, dtype=dtype)
    outputs, tolerance = random_calls.outputs_of(op, inputs, fields, dtype)
    assert [(name, str(result.dtype)) for (name, _, _), result in zip(outputs, results)] == [
        (name, np.dtype(random_calls.DTYPES[its]).name) for name, _, its in outputs]
    for (name, _, _), result, right in zip(outputs, results, random_calls.reference(op, values, dtype, before), strict=True):
        assert random_calls.error_text(result, right, tolerance) == "", (values, name)
    for name in inputs.keys() - random_calls.updated(op, inputs):
        assert np.array_equal(inputs[name].view(np.uint8), before[name].view(np.uint8)), f"{name} was written"


@SETTINGS
@given(seed=st.integers(0, 2**32))
def test_drawn_noise_is_what_keep_returns(seed):
    random = np.random.default_rng(seed)
    x0, levels = random.standard_normal((3, 40)).astype(np.float32), random.standard_normal((3, 2)).astype(np.float32)
    x_t, noise = noisefloor.ops.q_sample(x0, levels, noise="drawn", keep=True, seed=seed)
    assert np.allclose(x_t, levels[:, :1] * x0 + levels[:, 1:] * noise, atol=1e-5)
    assert np.array_equal(noisefloor.ops.q_sample(x0, levels, seed=seed), x_t)  # no noise tensor: it is drawn
    assert abs(noise.mean()) < 1 and 0.5 < noise.std() < 1.5


def test_what_an_op_updates_is_written_in_place():
    p, m, v, g = (np.full(40, number, np.float32) for number in (1, 0, 0, 2))
    rest = (g, np.array([0.5, 10, 1000, 0], np.float32), np.ones(1, np.float32))  # the first step, of rate 0.5
    assert noisefloor.ops.adamw(p, m, v, *rest, dtype="fp32") is None
    assert np.allclose(p, 0.5) and np.allclose(m, 0.2) and np.allclose(v, 0.004)
    copy = noisefloor.ops.adamw(p, m, v, *rest, copy=True, dtype="fp16")
    assert copy.dtype == np.float16 and np.array_equal(copy, p.astype(np.float16)) and (p < 0.5).all()
    p.flags.writeable = False
    with pytest.raises(ValueError, match="adamw: 'p' .*read-only"):
        noisefloor.ops.adamw(p, m, v, *rest, dtype="fp32")


def test_a_width_that_no_tensor_tells_is_said():
    dy, weight = np.ones((1, 4, 4, 2), np.float32), np.ones((2, 3, 3, 3), np.float32)
    for side in (7, 8):  # of stride 2 both leave four columns
        assert noisefloor.ops.conv2d_dgrad(dy, weight, stride=2, h=side, w=side).shape == (1, side, side, 3)
