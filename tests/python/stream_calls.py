"""Calls of ops on streams, in every way and by every variant that can run them: import it behind `built`."""

import noisefloor
import noisefloor.torch
import torch
from random_calls import as_tuple

# Ops of which some variants need scratch memory, lay weights out anew or have several outputs: shapes by name, the first each stream's own; fields.
PROBLEMS = [
    ("groupnorm", {"x": (2, 1024, 320), "gamma": (320,), "beta": (320,)}, {"groups": 32, "fusion": "silu", "stats": True}),
    ("layernorm", {"x": (512, 640), "gamma": (640,), "beta": (640,), "residual": (512, 640)}, {}),
    ("gemm", {"a": (128, 1280), "b": (640, 1280), "bias": (640,)}, {"act": "silu"}),
    ("attention", {"q": (2, 64, 4, 64), "k": (2, 1024, 4, 64), "v": (2, 1024, 4, 64)}, {"lse": True}),
    ("conv2d", {"x": (2, 32, 32, 4), "w": (320, 3, 3, 4), "bias": (320,)}, {"act": "silu"}),
    ("conv2d", {"x": (2, 16, 16, 64), "w": (64, 3, 3, 64), "bias": (64,)}, {"upsample": True}),
    ("timestep_embedding", {"t": (4,), "w1": (640, 320), "b1": (640,), "w2": (640, 640), "b2": (640,)}, {}),
]


def variants_of(op, first, rest, fields):
    """None, and on a GPU the names of those that can run it."""
    found = [None]
    for variant in noisefloor.variants(op) if first.is_cuda else []:
        if variant.built and variant.kind != "host":
            try:
                getattr(noisefloor.ops, op)(first, **rest, **fields, variant=variant.name)
                found.append(variant.name)
            except ValueError as refused:
                assert "cannot run" in str(refused)
    return found


def calls_of(device, streams):
    """[(name, function of one tensor)] of every problem and variant in every way to call it, and [[the tensor of each] of each stream]."""
    random, calls, tensors = torch.Generator().manual_seed(1), [], [[] for _ in range(streams)]

    def normal(name, shape):
        dtype = torch.float32 if name == "t" or device == "cpu" else torch.bfloat16
        return torch.randn(shape, generator=random).div(shape[-1] ** 0.5 if name in ("b", "w", "w1", "w2") else 1).to(device, dtype)

    for op, shapes, fields in PROBLEMS:
        (first, shape), *others = shapes.items()
        rest, own = {name: normal(name, shape) for name, shape in others}, [normal(first, shape).abs() for _ in range(streams)]
        for variant in variants_of(op, own[0], rest, fields):
            arguments = {**rest, **fields, "variant": variant}
            ours, torchs = getattr(noisefloor.ops, op), getattr(noisefloor.torch, op)
            ways = {"ops": lambda x, call=ours, given=arguments: call(x, **given),
                    "ops with out": lambda x, call=ours, given=arguments: call(x, **given, out=tuple(map(torch.empty_like, as_tuple(call(x, **given))))),
                    "torch": lambda x, call=torchs, given=arguments: call(x, **given),
                    "a handle": noisefloor.prepare(op, shape, **arguments),
                    "torch's handle": noisefloor.torch.prepare(op, shape, **arguments)}  # fmt: skip
            calls += [(f"{op} {variant}, {way}", call) for way, call in ways.items()]
            for tensor, its in zip(own, tensors):
                its += [tensor] * len(ways)
    return calls, tensors
