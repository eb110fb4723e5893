"""Each op's oracle against the reference of its PyTorch baseline, both in fp64, on random problems.

A baseline takes the same tensors as PyTorch's users have them; the views are below, and so is what the baselines refuse: statistics and log-sum-exp.
"""

from importlib import import_module

import built  # noqa: F401 - first
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import numpy as np  # noqa: E402
import random_calls  # noqa: E402
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from baselines.pytorch.problems import Problem  # noqa: E402

SETTINGS = settings(max_examples=40, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))


def attention(problem, t):
    return t if "qkv" not in t else dict(zip("qkv", t["qkv"].unbind({"packed_3hd": -3, "packed_h3d": -2, "packed_hd3": -1}[problem.choice("layout")])))


def frames_inside(problem, t):
    return {name: one.transpose(1, 2).flatten(0, 1) for name, one in attention(problem, t).items()}


def channels_first(problem, t):
    return {name: one.movedim(-1, 1) if one.ndim > 3 else one for name, one in t.items()}


def image_of(problem, x):
    """[n, channels, h, w] of [n, pixels, channels]."""
    width = problem.integer("down_w") or 1
    return x.unflatten(1, (-1, width)).movedim(-1, 1)


VIEWS = {
    "attention": attention,
    "temporal_attention": frames_inside,
    "conv2d": lambda problem, t: channels_first(problem, t) | ({"w_side": t["w_side"][..., None, None]} if "w_side" in t else {}),
    "conv3d_temporal": lambda problem, t: channels_first(problem, t) | {"w": t["w"].movedim(-1, 1)[..., None]},
    "conv_transpose2d": lambda problem, t: channels_first(problem, t) | {"w": t["w"].permute(3, 0, 1, 2)},
    "resample": channels_first,
    "groupnorm": lambda problem, t: t | {name: image_of(problem, t[name]) for name in ("x", "skip") if name in t},
    "layernorm": lambda problem, t: t | {name: t[name][:, None] for name in ("scale", "shift") if name in t},
    "elementwise": lambda problem, t: {name: one[:, None] if one.ndim == 2 else one for name, one in t.items()},
    "edm_precondition": lambda problem, t: t | {"sigma": t["sigma"][:, None]},
    "q_sample": lambda problem, t: t | dict(zip(("alpha", "sigma"), t["levels"].split(1, 1))),
}


def back(op, shape, one):
    """An output of the baseline as the op has it."""
    if op == "temporal_attention":
        return one.unflatten(0, (shape[0], shape[2])).transpose(1, 2)
    if one.ndim == 4 and op not in ("attention", "temporal_attention"):
        return one.movedim(1, -1).reshape(shape)
    return one


def slabs_of(x):
    """Mean and squared deviations of every 64 rows of [n, rows, channels], as a convolution leaves them."""
    slabs = x.split(64, 1)
    return [torch.stack(part, 1) for part in ([slab.mean(1) for slab in slabs], [slab.var(1, correction=0) * slab.shape[1] for slab in slabs])]


def statistics_of(parts):
    return [torch.cat(statistics, 1) for statistics in zip(*map(slabs_of, parts))]


def sampled(values, inputs, seed):
    """groupnorm's inputs with an x, whose statistics are those of the slabs."""
    x = inputs.get("x")
    if x is None:
        x = np.random.default_rng(seed).standard_normal([int(values[name]) for name in ("n", "hw", "channels")]).astype(np.float32) + 1
    parts = torch.from_numpy(x).double()
    mean, m2 = (one.float().numpy() for one in statistics_of(parts.chunk(4, 1) if values["slab_stats"] == "quarters" else [parts]))
    return inputs | {"slab_mean": mean, "slab_m2": m2}, {"x": x}


def pytorchs(op, values, inputs, count):
    """The outputs, so many, by the baseline's reference; None where they are random."""
    filled = {name: inputs[name].ravel().tolist() for name in ("coefficients",) if name in inputs}
    problem = Problem(op, "", values, filled=filled, outputs=("x_next", "history_out")[:count])  # sampler_step's, which alone asks
    tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
    made = import_module(f"baselines.pytorch.ops.{op}").reference(problem, VIEWS.get(op, lambda _, t: t)(problem, tensors))
    if made is not None and op == "attention" and problem.flag("lse"):
        q, k, _ = (attention(problem, tensors)[name].double().transpose(1, 2) for name in "qkv")
        made += (torch.logsumexp(q @ k.mT * (problem.real("scale") or q.shape[-1] ** -0.5), -1),)
    return made


@pytest.mark.parametrize("op", random_calls.OPS)
@SETTINGS
@given(seed=st.integers(0, 2**32))
def test_an_oracle_is_what_pytorch_computes(op, seed):
    for which in range(6):
        values, inputs, _ = random_calls.call_of(op, seed, "fp32", which)
        more, allowed = {}, 1e-6 if "norm_coefficients" in inputs or "attention" in op else 1e-9  # what is normed there, or the scale, is fp32
        if "slab_mean" in inputs:
            inputs, more = sampled(values, inputs, seed)
            allowed = 1e-5  # as are the statistics
        made = random_calls.reference(op, values, "fp32", inputs)
        right = pytorchs(op, values, inputs | more, len(made))
        if right is None:
            continue  # of drawn noise
        if op == "conv2d" and values["stats"] == "1":
            y = torch.from_numpy(made[0].astype(np.float32)).double()
            parts = [y[:, row::2, column::2] for row in (0, 1) for column in (0, 1)] if values["upsample"] == "1" else [y]
            if values["patches"] == "1":
                parts = [y.unflatten(2, (-1, 8)).unflatten(1, (-1, 8)).transpose(2, 3)]
            right += tuple(statistics_of([part.reshape(len(y), -1, y.shape[-1]) for part in parts]))
        for oracle, one in zip(made, right, strict=True):
            one = back(op, oracle.shape, one)
            assert oracle.shape == one.shape, values
            assert np.abs(oracle - one.numpy()).max() <= allowed * (1 + np.abs(oracle).max()), values
