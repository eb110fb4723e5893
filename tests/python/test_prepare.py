"""Packed weights: what a handle gives, what it refuses, and that it follows the weights alone."""

import re

import built  # noqa: F401 - first
import noisefloor
import numpy as np
import pytest
import random_calls
from exchanging import Wrapped
from noisefloor import _signatures, ops

random = np.random.default_rng(1)


def normal(*shape, dtype=np.float32):
    return random.standard_normal(shape).astype(dtype)


X, W, BIAS = normal(2, 6, 5, 8), normal(16, 3, 3, 8), normal(16)


@pytest.mark.parametrize("dtype", random_calls.DTYPES)
@pytest.mark.parametrize("op", random_calls.OPS)
def test_a_handle_gives_what_the_op_gives(op, dtype):
    for which in range(4):
        _, inputs, fields = random_calls.call_of(op, 11, dtype, which)
        first = next(iter(inputs))
        if len(inputs) == 1 or random_calls.updated(op, inputs):
            continue  # nothing to keep, or not the same twice
        wanted = random_calls.as_tuple(getattr(ops, op)(**inputs, **fields, dtype=dtype))
        handle = noisefloor.prepare(op, **{**inputs, first: inputs[first].shape}, **fields, dtype=dtype)
        assert (handle.op, handle.variant, handle.dtype, handle.open) == (op, "host", dtype, (first,))
        for _ in range(2):
            for one, right in zip(random_calls.as_tuple(handle(inputs[first])), wanted, strict=True):
                assert np.array_equal(one, right, equal_nan=True)


@pytest.mark.parametrize("op", [op for op in random_calls.OPS if "conv" in op and not op.endswith("grad")])
def test_packed_weights_do_not_follow_the_images(op):
    """One handle for every number and size of images, as for the other ops; a kernel that breaks it must not prepare."""
    tried = 0
    for which in range(20):
        values, inputs, fields = random_calls.call_of(op, 5, "fp32", which)
        small = inputs["x"]
        large = normal(*[extent + 2 for extent in small.shape[:-1]], small.shape[-1])
        if {"image_shift", "residual"} & inputs.keys():
            continue  # these follow x
        fields = {name: value for name, value in fields.items() if _signatures.signature(op).fields[name]["default"] is not None}
        handle = noisefloor.prepare(op, **{**inputs, "x": small.shape}, **fields)
        try:
            wanted = random_calls.as_tuple(getattr(ops, op)(**{**inputs, "x": large}, **fields))
        except ValueError:
            continue  # not every extent is a problem of the op
        assert handle.memory is not None and all(np.array_equal(*pair) for pair in zip(random_calls.as_tuple(handle(large)), wanted, strict=True))
        tried += 1
    assert tried > 2


def test_every_op_that_prepares_does_so_from_w():
    """The handle's guard against a shape in the weights' place knows that name alone."""
    for op in random_calls.OPS:
        inputs = random_calls.call_of(op, 3, "fp32")[1]
        fields = random_calls.call_of(op, 3, "fp32")[2]
        if len(inputs) > 1 and noisefloor.prepare(op, **inputs, **fields, dtype="fp32").memory is not None:
            assert "w" in inputs


def test_the_weights_of_a_second_source_must_be_there_too():
    given = {"side": (2, 6, 5, 4), "w_side": (16, 4)}
    with pytest.raises(ValueError, match="'w_side' must be a tensor, not a shape: variant 'host' packs it"):
        noisefloor.prepare("conv2d", X.shape, W, BIAS, variant="host", **given)
    side, w_side = normal(2, 6, 5, 4), normal(16, 4)
    ready = noisefloor.prepare("conv2d", X.shape, W, BIAS, variant="host", **given | {"w_side": w_side})
    assert np.array_equal(ready(X, side=side), ops.conv2d(X, W, BIAS, side=side, w_side=w_side, variant="host"))


def test_the_tensors_left_open_come_by_position_or_name():
    conv = noisefloor.prepare("conv2d", X.shape, W, BIAS, residual=(2, 6, 5, 16))
    residual, out = normal(2, 6, 5, 16), np.zeros((2, 6, 5, 16), np.float32)
    wanted = ops.conv2d(X, W, BIAS, residual=residual)
    assert conv.open == ("x", "residual") and np.array_equal(conv(X, residual), wanted)
    assert conv(X, residual=residual, out=out) is out and np.array_equal(conv(residual=residual, x=X), wanted) and np.array_equal(out, wanted)
    for tensors, named, had in [((X,), {}, "(x)"), ((X, residual, X), {}, "(x, residual, one more)"), ((X, residual), {"x": X}, "(x, residual, x)"),
                                ((X, residual), {"w": W}, "(x, residual, w)"), ((), {"x": X, "act": "silu"}, "(x, act)")]:
        with pytest.raises(TypeError, match=re.escape(f"conv2d: this handle takes (x, residual), not {had}")):
            conv(*tensors, **named)


def test_a_call_that_does_not_fit_is_refused_by_name():
    conv = noisefloor.prepare("conv2d", X.shape, W, BIAS)
    for x, text in [(normal(2, 6, 5, 7), "'w' is [16, 3, 3, 8]"), (X.astype(np.float16), "'x' is fp16, not fp32"), (X[:0], "'x' is empty"),
                    (X[0], "'x' is [6, 5, 8]")]:
        with pytest.raises(ValueError, match=re.escape(text)):
            conv(x)
    with pytest.raises(ValueError, match="'stream' is for tensors on a GPU"):
        conv(X, stream=0)


def test_what_cannot_be_prepared_is_refused_by_name():
    for arguments, error, text in [
            (("conv2d", X.shape, W.shape, BIAS), ValueError, "'w' must be a tensor, not a shape: variant 'host' packs it"),
            (("conv2d", X.shape, W.shape), TypeError, "conv2d: prepare needs the weights as tensors, not only shapes"),
            (("conv2d", ("a", 1), W), TypeError, "conv2d: 'x' must be a tensor, or a shape of integers"),
            (("conv2d", (2, 6, 5, 9), W), ValueError, "conv2d: "), (("conv", W), ValueError, "noisefloor has no op 'conv'"),
            (("conv2d",), TypeError, "missing a required argument: 'x'")]:
        with pytest.raises(error, match=re.escape(text)):
            noisefloor.prepare(*arguments)
    with pytest.raises(TypeError, match="conv2d: prepare takes no 'out'"):
        noisefloor.prepare("conv2d", X.shape, W, BIAS, out=X)
    with pytest.raises(ValueError, match="variant 'naive' "):
        noisefloor.prepare("conv2d", X.shape, W, BIAS, variant="naive")


def test_an_output_in_the_handles_memory_is_refused():
    conv = noisefloor.prepare("conv2d", X.shape, W, BIAS)
    wanted = conv(X)
    out = conv.memory[: wanted.nbytes].view(np.float32).reshape(wanted.shape)
    with pytest.raises(ValueError, match="conv2d: output 'y' shares memory with the packed weights"):
        conv(X, out=out)
    assert np.array_equal(conv(X), wanted)


def test_weights_of_a_framework_that_makes_no_tensors():
    with pytest.raises(TypeError, match="cannot make a tensor as 'exchanging' has them; give the first of the weights as a tensor of NumPy"):
        noisefloor.prepare("conv2d", X.shape, Wrapped(W), BIAS)
    assert np.array_equal(noisefloor.prepare("conv2d", X.shape, W, Wrapped(BIAS)).memory, noisefloor.prepare("conv2d", X.shape, W, BIAS).memory)


def test_memory_of_another_layout_is_refused():
    """What the framework's operators pass on; a handle cannot mix it up."""
    memory = noisefloor.prepare("conv2d", X.shape, W, BIAS).memory

    def call(prepared, variant="host"):
        return ops.conv2d(X, W, BIAS, variant=variant, prepared=prepared)

    assert np.array_equal(call(memory), ops.conv2d(X, W, BIAS))
    with pytest.raises(ValueError, match="'prepared' is of one variant: give its name as variant="):
        call(memory, None)
    with pytest.raises(ValueError, match=f"'prepared' has {memory.nbytes - 64} bytes, and variant 'host' in fp32 needs {memory.nbytes} uint8: it was prepared for other"):
        call(memory[64:])
    shifted = np.zeros(memory.nbytes + 127, np.uint8)
    first = -shifted.ctypes.data % 64 + 16
    with pytest.raises(ValueError, match="'prepared' must begin at a multiple of 64 bytes"):
        call(shifted[first : first + memory.nbytes])
