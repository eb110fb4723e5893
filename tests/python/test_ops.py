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
    results = random_calls.as_tuple(getattr(noisefloor.ops, op)(**inputs, **fields, dtype=dtype))
    outputs, tolerance = random_calls.outputs_of(op, inputs, fields, dtype)
    assert [(name, str(result.dtype)) for (name, _, _), result in zip(outputs, results)] == [
        (name, np.dtype(random_calls.DTYPES[its]).name) for name, _, its in outputs]
    for (name, _, _), result, right in zip(outputs, results, random_calls.reference(op, values, dtype, inputs), strict=True):
        assert random_calls.error_text(result, right, tolerance) == "", (values, name)
    for name, tensor in inputs.items():
        assert np.array_equal(tensor.view(np.uint8), before[name].view(np.uint8)), f"{name} was written"


@SETTINGS
@given(seed=st.integers(0, 2**32))
def test_drawn_noise_is_what_keep_returns(seed):
    random = np.random.default_rng(seed)
    x0, levels = random.standard_normal((3, 40)).astype(np.float32), random.standard_normal((3, 2)).astype(np.float32)
    x_t, noise = noisefloor.ops.q_sample(x0, levels, noise="drawn", keep=True, seed=seed)
    assert np.allclose(x_t, levels[:, :1] * x0 + levels[:, 1:] * noise, atol=1e-5)
    assert np.array_equal(noisefloor.ops.q_sample(x0, levels, seed=seed), x_t)  # no noise tensor: it is drawn
    assert abs(noise.mean()) < 1 and 0.5 < noise.std() < 1.5
