"""How long bringing a run up to date takes (tools/publish estimate): the GPU-minutes of the rows that a sweep --reuse would measure again."""

import collections
import gzip
import json
import re
from pathlib import Path

CASE = "op", "problem", "dtype", "variant"
CHECKS = 1 / 20  # of the rows that could be kept: bench/sweep/earlier_run.cpp
KERNEL = re.compile(r"\b((\w+)::\w+)")  # and its room, the folder of kernels/ that it is from


def name_launches(folder: Path, rows: list):
    """Gives each row `names`: a baseline its own; others their kernels (convolution::conv_halo) and these kernels' rooms; a plan both."""
    packed = folder / "samples.jsonl.gz"
    with gzip.open(packed, "rt") if packed.is_file() else open(folder / "samples.jsonl") as lines:
        kernels = {tuple(line[name] for name in CASE): line.get("kernels", []) for line in map(json.loads, lines)}
    for row in rows:
        row["names"] = {row["variant"]} if row["kind"] == "baseline" else set()
        if row["op"] == "network" or row["kind"] != "baseline":
            row["names"] |= {name for kernel in kernels.get(tuple(row[name] for name in CASE), []) for names in KERNEL.findall(kernel) for name in names}
        if row["op"] == "network":
            row["names"] |= set(re.findall(r"\d+ (\w+)", row["reason"]))  # nodes: 115 cudnn, 104 ptx_sm90a


def take_times(rows: list):
    """Gives each row `minutes`, which measuring it again takes. Those of a network also chose its plan, which takes kept rows' times now: plan_fastest,
    which comes last, when all are known, tells what is left; of the choice the share of the rows that are measured again stays."""
    planned, chosen_from, anew = {}, collections.Counter(), collections.Counter()
    for row in rows:
        row["minutes"] = row["spent"] = float(row["spent_s"] or 0) / 60
        row["sets"] = [(use.split(":")[0], row["dtype"]) for use in row["networks"].split(";")]
        if row["variant"] == "plan_fastest":
            planned[row["sets"][0]] = row["spent"]
        for network in row["sets"] if row["op"] != "network" and not row["variant"].startswith(("torch_", "peer_")) else []:
            chosen_from[network] += row["spent"]
            anew[network] += row["spent"] * (1 if row["again"] else CHECKS)
    for row in rows:
        network = row["sets"][0]
        left = planned.get(network, row["spent"])
        if row["variant"].startswith("plan_") and left < row["spent"] and chosen_from[network]:
            row["minutes"] = left + (row["spent"] - left) * anew[network] / chosen_from[network]


def estimate_text(folder: Path, rows: list, changed: set, listed: set) -> str:
    """`changed`: kernels, their rooms, baselines; LookupError where no row launches one. `listed`: (op, problem/dtype) of today's sweeps."""
    name_launches(folder, rows)
    for name in sorted(changed - {name for row in rows for name in row["names"]}):
        of_op = sorted({one for row in rows if row["op"] == name for one in row["names"] if f"{one}::" in " ".join(row["names"])})
        raise LookupError(f"no row launches '{name}', a kernel, a room of kernels or a baseline" + f"; those of {name} launch {', '.join(of_op)}" * bool(of_op))
    new = listed - {(row["op"], f"{row['problem']}/{row['dtype']}") for row in rows}
    rows = [row for row in rows if (row["op"], f"{row['problem']}/{row['dtype']}") in listed]
    signed = any(row.get("signature") for row in rows)
    for row in rows:
        unknown = row["status"] == "ok" and signed and not row["signature"]
        row["again"] = row["status"] not in ("ok", "unsupported_problem") or unknown or bool(row["names"] & changed)
    take_times(rows)
    again = [row for row in rows if row["again"]]
    total, checks = (sum(row["minutes"] for row in some) for some in (again, [row for row in rows if not row["again"]]))
    text = f"{'op':<20}{'rows':>7}{'again':>7}{'minutes':>9}{'of all':>9}\n"
    for op in sorted({row["op"] for row in rows}):
        of_op, more = ([row for row in some if row["op"] == op] for some in (rows, again))
        text += f"{op:<20}{len(of_op):>7}{len(more):>7}{sum(row['minutes'] for row in more):>9.1f}{sum(row['spent'] for row in of_op):>9.1f}\n"
    text += f"{total:.1f} GPU-minutes, and at most {CHECKS * checks:.1f} for checks, the cold and warm times of one in twenty of the rows that are kept.\n"
    text += "Not in spent_s: a launch of each kept row of ours, phases that it lacks; of rows that are older than its present meaning paired comparisons and counters.\n"
    if new:
        text += f"{len(new)} problems of today's list have no row: {', '.join(f'{op} {count}' for op, count in sorted(collections.Counter(op for op, _ in new).items()))}.\n"
    return text + "No row has a signature: sweep --reuse refuses the run until they have.\n" * (not any(row.get("signature") for row in rows))
