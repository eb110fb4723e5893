"""Each op's formula against PyTorch in fp64 on random problems; test_ops.py, which needs no PyTorch, holds the ops to the formulas in every dtype.

PyTorch's side is that of `noisefloor new-kernel`, which calls torch.nn.functional; what it lacks of the outputs is below.
"""

from types import SimpleNamespace

import built  # noqa: F401 - first
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import numpy as np  # noqa: E402
import random_calls  # noqa: E402
from bench.plugin.new_kernel import formulas_torch  # noqa: E402
from bench.plugin.new_kernel.formulas import silu  # noqa: E402
from bench.plugin.python_plugin import Tensors  # noqa: E402
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from noisefloor._signatures import signature  # noqa: E402

SETTINGS = settings(max_examples=40, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
TYPED = {"integer": int, "real": float, "flag": lambda text: int(text == "1"), "choice": str}


def problem_of(op, values):
    fields = {name: TYPED[field["type"]](values[name]) for name, field in signature(op).fields.items()}
    return SimpleNamespace(fields=fields, **fields)


def tensors_of(inputs):
    made = Tensors()
    for name, array in inputs.items():
        made[name] = made.inputs[name] = torch.from_numpy(array)
    return made


def slabs_of(x):
    """Mean and squared deviations of every 64 rows of [n, rows, channels], as a convolution leaves them."""
    slabs = x.split(64, 1)
    return [torch.stack(part, 1) for part in ([slab.mean(1) for slab in slabs], [slab.var(1, correction=0) * slab.shape[1] for slab in slabs])]


def of_both(t):
    return torch.cat((t.x, t.skip), 2) if "skip" in t.inputs else t.x


def groupnorm(problem, t):
    """With the mean and rstd that PyTorch's norm gives too."""
    x, outputs = of_both(t), formulas_torch.groupnorm(problem, t)
    if problem.stats:
        outputs += torch.native_group_norm(x.transpose(1, 2).contiguous(), None, None, *x.mT.shape, problem.groups, problem.eps)[1:]
    return outputs


def attention(problem, t):
    outputs = formulas_torch.attention(problem, t)
    if problem.lse:
        q, k, _ = (part.transpose(1, 2) for part in formulas_torch.heads(problem, t))
        outputs += (torch.logsumexp(q @ k.mT * (problem.scale or problem.dim**-0.5), -1),)
    return outputs


def sampled(values, inputs, seed):
    """groupnorm's inputs with an x, whose statistics are those of the slabs."""
    shape = [int(values[name]) for name in ("n", "hw", "channels")]
    x = torch.from_numpy(np.random.default_rng(seed).standard_normal(shape) + 1)
    parts = x.chunk(4, 1) if values["slab_stats"] == "quarters" else [x]
    mean, m2 = (torch.cat(statistics, 1).numpy() for statistics in zip(*map(slabs_of, parts)))
    return inputs | {"x": x.numpy(), "slab_mean": mean, "slab_m2": m2}


def normalized(values, coefficients, x):
    """What each channel's multiplier and addend make of x."""
    y = x * coefficients[:, :1] + coefficients[:, 1:]
    return y if values["fusion"] == "none" else silu(y)


TORCH = {"groupnorm": groupnorm, "attention": attention}


@pytest.mark.parametrize("op", random_calls.OPS)
@SETTINGS
@given(seed=st.integers(0, 2**32))
def test_a_formula_is_what_pytorch_computes(op, seed):
    for which in range(6):
        values, inputs, _ = random_calls.call_of(op, seed, "fp32", which)
        inputs = {name: array.astype(np.float64) for name, array in inputs.items()}
        if "slab_mean" in inputs:
            inputs = sampled(values, inputs, seed)
        t = tensors_of(inputs)
        made = getattr(random_calls.formula(op), op)(values | {"dtype": "fp32"}, inputs)
        if made[0] is None:
            continue  # of drawn noise
        if values.get("coefficients") == "1":
            made = normalized(values, made[0], of_both(t).numpy()), *made[1:]
        right = TORCH.get(op, getattr(formulas_torch, op))(problem_of(op, values), t)
        allowed = 1e-6 if "norm_coefficients" in inputs else 1e-9  # what is normed there is rounded to fp32
        for formula, one in zip(made, right, strict=True):
            assert formula.shape == one.shape, values
            assert np.abs(formula - one.numpy()).max() <= allowed * (1 + np.abs(formula).max()), values


@SETTINGS
@given(seed=st.integers(0, 2**32))
def test_a_convolutions_statistics_are_what_pytorch_computes(seed):
    y = torch.from_numpy(np.random.default_rng(seed).standard_normal((2, 2 * (1 + seed % 9), 14, 3)))
    for upsample in "01":
        parts = [y[:, row::2, column::2] for row in (0, 1) for column in (0, 1)] if upsample == "1" else [y]
        right = [torch.cat(statistics, 1) for statistics in zip(*(slabs_of(part.reshape(2, -1, 3)) for part in parts))]
        for made, one in zip(random_calls.formula("conv2d").conv2d_statistics({"upsample": upsample}, y.numpy()), right, strict=True):
            assert np.allclose(made, one.numpy(), rtol=1e-11, atol=1e-11)
