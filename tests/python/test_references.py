"""Each op's oracle against its PyTorch baseline, both in fp64, on random problems. Outputs that the baselines refuse are added here."""

from importlib import import_module

import built  # noqa: F401 - first
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import numpy as np  # noqa: E402
import random_calls  # noqa: E402
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from baselines.pytorch import case  # noqa: E402
from baselines.pytorch.problems import Problem  # noqa: E402

SETTINGS = settings(max_examples=40, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))


def back(op, shape, one):
    """An output of the baseline as the op has it."""
    if op == "temporal_attention":
        return one.unflatten(0, (shape[0], shape[2])).transpose(1, 2)
    if one.ndim == 4 and op not in ("attention", "attention_backward", "temporal_attention"):
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
    """The outputs, so many, of the baseline in fp64; None where they are random."""
    module, tensors = import_module(f"baselines.pytorch.ops.{op}"), {name: torch.from_numpy(array) for name, array in inputs.items()}
    filled = {name: inputs[name].ravel().tolist() for name in ("coefficients",) if name in inputs}
    refused = {"lse": "0", "slab_stats": "none", **({"stats": "0"} if op == "conv2d" else {})}
    outputs = ("x_next", "history_out")[:count] if op == "sampler_step" else ("y",)  # which it alone asks
    problem = Problem(op, "", {name: refused.get(name, value) for name, value in values.items()}, filled=filled, outputs=outputs, dtype=torch.float32)
    arranged = module.arrange(problem, dict(tensors)) if hasattr(module, "arrange") else tensors
    made = case.reference(module, problem, arranged)
    if made is not None and op == "attention" and values["lse"] == "1":
        q, k = (arranged[name].double().transpose(1, 2) for name in "qk")
        made += (torch.logsumexp(q @ k.mT * (problem.real("scale") or q.shape[-1] ** -0.5), -1),)
    return made


@pytest.mark.parametrize("op", random_calls.OPS)
@SETTINGS
@given(seed=st.integers(0, 2**32))
def test_an_oracle_is_what_pytorch_computes(op, seed):
    for which in range(6):
        values, inputs, _ = random_calls.call_of(op, seed, "fp32", which)
        if op == "groupnorm" and int(values["n"]) * int(values["channels"]) * int(values["hw"]) == int(values["groups"]):
            continue  # PyTorch norms no single values
        if op == "sampler_step" and values["prediction"] == "x0":
            inputs["coefficients"][:, :2] = 0, 1  # as every solver has them: the baseline takes the model's output as it is
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
