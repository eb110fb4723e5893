"""Random problems of any op with random tensors, made of nothing but what the module says of itself."""

import contextlib
import functools

import ml_dtypes
import numpy as np
from noisefloor import _core
from noisefloor._signatures import CATALOGUE, bound, signature

DTYPES = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}
OPS = sorted(CATALOGUE)


def text_of(values):
    return ",".join(f"{name}={value}" for name, value in values.items())


def reference(op, values, dtype, inputs):
    """The outputs in fp64 by the oracle in C++, from the inputs by name."""
    return [np.reshape(elements, shape) for _, shape, elements in _core.reference(op, text_of(values), dtype, inputs)]


def as_tuple(result):
    return result if isinstance(result, tuple) else () if result is None else (result,)


def updated(op, inputs):
    """The names of the inputs that a call updates, in their order."""
    return [tensor.name for tensor in signature(op).inputs if tensor.updated and tensor.name in inputs]


def outcome(function, op, inputs, fields, **more):
    """What a call updates and what it returns, in the order of the op's tensors."""
    returned = as_tuple(function(**inputs, **fields, **more))
    return (*(inputs[name] for name in updated(op, inputs)), *returned)


def drawn(field, random, before):
    """Integers are small, and often a multiple of one before: groups divide channels, keys are as many as queries."""
    if field["choices"]:
        return str(random.choice(field["choices"]))
    low, high = (float(end) for end in field["range"].split(" to "))
    if field["type"] == "real":
        return repr(min(max(0.5 * int(random.integers(low > 0, 5)), low), high))  # what is nearly 0 is lost in fp16
    again = before and random.integers(3) == 0
    value = random.choice(before) * random.integers(1, 3) if again else random.integers(1, 14)
    before.append(int(min(max(value, low), high)))
    return str(before[-1])


@functools.lru_cache(1)
def samples(op, seed, count=24):
    """Problems, as [(values, [(tensor, shape, dtype, role)])]; the first have defaults wherever there are any."""
    random, found = np.random.default_rng(seed), []
    for attempt in range(12 * count):
        defaults, before = attempt < 3 * count and len(found) < count / 4, []
        values = {field["name"]: drawn(field, random, before) for field in CATALOGUE[op]["fields"]
                  if field["default"] is None or not defaults and random.integers(2)}  # fmt: skip
        with contextlib.suppress(ValueError):  # not every draw is a problem
            found.append(_core.tensors(op, text_of(values)))
        if len(found) == count:
            break
    return found


def problem(op, seed, which=0):
    """(values, tensors) of a small one; several of a seed are told apart by `which`, from 0."""
    found = samples(op, seed)
    return found[len(found) - 1 - which % len(found)]


def fill(op, name, shape, values, random):
    """Values of a tensor; weights are scaled so that sums of products have a deviation of 1."""
    x = random.standard_normal(shape)
    if name in ("w", "weight", "w1", "w2", "w_side") or (op == "gemm" and name == "b"):
        x /= np.sqrt(np.prod(shape[1:]))
    if op == "attention_backward" and name in ("q", "k", "v", "qkv"):
        x /= 4  # lse is not the logits': their exponentials are to stay in fp16
    if name in ("sigma", "slab_m2", "t") or (op, name) in (("adamw", "v"), ("adamw", "step")):
        x = np.abs(x) + 0.1
    if op == "training_batch" and name in ("labels", "step"):  # whole numbers
        x = np.arange(x.size) % int(values["classes"]) if name == "labels" else np.array([abs(x[0]) * 1000 // 1, 3])
    if name == "coefficients":
        x[:, 3] = np.inf if values["clamp"] == "0" else float(values["clamp"])  # what x0 is held in
        if values["prediction"] == "x0":
            x[:, 0] = 0  # no share of x
        if values["noise"] == "drawn":
            x[:, 7] = 0  # of the noise
    return x


def call_of(op, seed, dtype, which=0):
    """(values, tensors by name, keyword arguments): the fields that tensors do not give are all said."""
    values, tensors = problem(op, seed, which)
    random = np.random.default_rng(seed + which)
    inputs = {}
    for name, shape, its_dtype, role in tensors:
        if role == "in":
            inputs[name] = fill(op, name, shape, values, random).astype(DTYPES[dtype if its_dtype == "T" else its_dtype])
    made = signature(op)
    convert = {"integer": int, "real": float, "flag": lambda text: text == "1", "choice": str}
    fields = {name: convert[made.fields[name]["type"]](values[name]) for name in made.keywords}
    fields |= {name: None for name in made.first if name not in inputs}
    if "noise" in made.shared and "noise" not in inputs:
        fields["noise"] = values["noise"]
    return values, inputs, fields


def outputs_of(op, inputs, fields, dtype):
    """[(name, shape, dtype)] of what a call updates and returns, and how far it may be off."""
    made = signature(op)
    shapes = tuple((inputs[one.name].shape, _core.short_dtype(str(inputs[one.name].dtype))) if one.name in inputs else fields.get(one.name) for one in made.inputs)
    returned, tolerance = bound(op).describe(shapes, tuple(fields[name] for name in made.keywords), dtype)[1:3]
    return [(name, inputs[name].shape, "fp32") for name in updated(op, inputs)] + returned, tolerance


def error_text(got, wanted, tolerance):
    """What is wrong with an output, by the op's own tolerance; "" where nothing is."""
    got = got.astype(np.float64)
    if got.shape != wanted.shape:
        return f"shape {got.shape}, not {wanted.shape}"
    difference = np.abs(got - wanted)
    rms = np.sqrt(np.mean(wanted**2))
    if not (difference <= tolerance[0] * (np.abs(wanted) + rms)).all():
        return f"off by {difference.max()}, rms {rms}, of tolerance {tolerance[0]}"
    if not np.linalg.norm(difference) <= tolerance[1] * np.linalg.norm(wanted):
        return f"off by {np.linalg.norm(difference) / np.linalg.norm(wanted)} in norm, tolerance {tolerance[1]}"
    return ""
