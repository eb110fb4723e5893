"""Writes the rows of transformers.json's networks into bench/problems/*.csv: one call of diffusers' module in bf16, captured on the meta device.

usage: PYTHONPATH=build/host/python python3 bench/problems/update_transformers.py, with PyTorch and diffusers 0.42.1

What no op is goes into not_written.csv: RMSNorms and rotations whole, all else by PyTorch's names. A prompt fills its tokens: attention has no mask.
"""

import collections
import dataclasses
import json
import math
import pathlib
import sys

from update import update

FOLDER = pathlib.Path(__file__).resolve().parent
NETWORKS = json.loads((FOLDER / "transformers.json").read_text())
SMALL = 65536  # elements: below them a call is one of many that PyTorch's launches bound
LAYOUTS = ("clone", "copy")  # of a layout that a kernel would read where it lies; attention's outputs lie so on no GPU


def region(frame):
    code = frame.f_code.co_name
    if code == "forward" and type(frame.f_locals.get("self")).__name__ == "RMSNorm":
        return "rms_norm"
    return "rope" if code.startswith("apply_rotary_emb") else None


def as_one_call(captured):
    """For sys.setprofile: what a norm or a rotation calls is one call."""
    entered = []

    def hear(frame, event, value):
        if event == "call" and region(frame):
            entered.append((frame, len(captured.calls)))
        elif event == "return" and entered and entered[-1][0] is frame:
            before = entered.pop()[1]
            captured.calls[before:] = [dataclasses.replace(captured.calls[-1], name=region(frame), shape=tuple(value.shape), problem=None, part=False,
                                                           reason="no op of the catalogue")]  # fmt: skip

    return hear


def capture(network):
    import diffusers
    import noisefloor
    import torch

    with torch.device("meta"), torch.no_grad():
        module = getattr(diffusers, network["class"])(**network["config"]).eval()
        kept = set(getattr(module, "_keep_in_fp32_modules", None) or [])
        for name, parameter in module.named_parameters():
            if not kept & set(name.split(".")):
                parameter.data = parameter.data.to(torch.bfloat16)
        source = sys.modules[type(module).__module__]
        if attend := getattr(source, "dispatch_attention_fn", None):
            source.dispatch_attention_fn = lambda *args, attn_mask=None, **more: attend(*args, **more)
        inputs = {name: torch.empty(shape, dtype=torch.bfloat16) for name, shape in network["inputs"].items()}
        with noisefloor.capture() as captured:
            sys.setprofile(as_one_call(captured))
            module(**inputs, **network.get("values", {}))
            sys.setprofile(None)
    return captured


def not_written(captured):
    """Rows of what is no problem of the catalogue."""
    rows = {}
    for call in captured.calls:
        if call.mapped or call.name in LAYOUTS:
            continue
        what, why = (call.name, "shape=" + "x".join(map(str, call.shape))), call.reason
        if math.prod(call.shape) < SMALL:
            what, why = ("small_calls", f"elements<{SMALL}"), "of many kinds"
        rows.setdefault(what, {"op": what[0], "problem": what[1], "why": why, "count": 0})["count"] += 1
    return list(rows.values())


def fields_of(problem):
    """There are no images: what is put together along the tokens lies in one piece."""
    fields = dict(problem.fields)
    if fields.get("op") == "concat":
        pixels = int(fields["h"]) * int(fields["w"])
        fields |= {"h": 1, "w": 1} | {name: pixels * int(fields[name]) for name in ("channels", "skip_channels")}
    return fields


def main():
    rows = collections.defaultdict(list)
    for name, network in NETWORKS.items():
        captured, counts = capture(network), collections.Counter()
        for group in captured.problems():
            dtype = {} if group.what.dtype == "bf16" else {"dtype": group.what.dtype}
            counts[group.what.op, tuple((fields_of(group.what) | dtype).items())] += group.count
        for (op, fields), count in counts.items():
            rows[op].append({"network": name, **dict(fields), "count": count})
        rows["not_written"] += [{"network": name, **row} for row in not_written(captured)]
        rows["sets"].append({"network": name, "what": network["what"], "by_name": "yes"})
    for op, generated in rows.items():
        update(FOLDER / f"{op}.csv", generated, NETWORKS)


if __name__ == "__main__":
    main()
