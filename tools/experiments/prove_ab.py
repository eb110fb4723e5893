#!/usr/bin/env python3
"""What `noisefloor ab` says of a build against another one, over many rows. Run by hand; no test.

usage: prove_ab.py --program NOISEFLOOR --other NOISEFLOOR --rows RUN --out FILE.csv [--cases N] [--slowed] [--minutes M]

--other is a copy of --program, of which no row may be slower, faster or wrong; or, with --slowed, the same commit built with
NOISEFLOOR_TEST_SLOWDOWN_PERCENT=1, of which 95 % of the rows must be slower. RUN is a run folder of this GPU: N of our kernels' rows (default 300),
evenly over their times; with --slowed those of 200 us and more, because the slow-down is a launch, which itself takes a
microsecond. A few problems at a time are compared and kept in FILE.csv; what it has is not compared again, so that several calls make one proof.

Exit codes: 0 as it should be; 1 it is not; 2 it could not be done, or time was up before (the same call goes on).
"""

import argparse
import csv
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

CHUNK, LEAST_SHARE, LEAST_SLOWED_US = 6, 0.95, 200
SPENT = "the budget was spent; what the passes before say stands"


def case_of(row):
    return "/".join(row[name] for name in ("op", "problem", "dtype", "variant"))


def chosen(run, options):
    with open(run / "sweep.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["status"] == "ok" and row["kind"] in ("naive", "tiled", "tensor_core", "ptx")]
    rows = [row for row in rows if not options.slowed or float(row["time_cold_us"]) >= LEAST_SLOWED_US]
    rows.sort(key=lambda row: float(row["time_cold_us"]))
    return sorted(case_of(rows[i * len(rows) // options.cases]) for i in range(options.cases)) if len(rows) > options.cases else sorted(map(case_of, rows))


def compare(group, options, seconds):
    """The rows of `ab`, those that the budget left unresolved aside, and what else it said."""
    exactly = "^(" + "|".join(re.sub(r"([.*+?^${}()|\[\]\\])", r"\\\1", case) for case in group) + ")$"
    part = options.out.with_suffix(".part")
    part.unlink(missing_ok=True)
    command = [options.program, "ab", options.program, options.other, "--networks", "all", "--dtypes", "bf16,fp16,fp32", "--filter", exactly,
               "--budget", f"{seconds:.0f}", "--out", part]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if not part.exists():
        print(f"prove_ab: error: ab: {(done.stderr or done.stdout).strip()}", file=sys.stderr)
        sys.exit(2)
    with open(part, newline="") as file:
        rows = list(csv.DictReader(file))
    part.unlink()
    return [row for row in rows if SPENT not in done.stderr or row["verdict"] != "unresolved"]


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: "))
    for name in ("program", "other", "rows", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--slowed", action="store_true")
    parser.add_argument("--minutes", type=float, default=1e6)
    options = parser.parse_args()
    until = time.monotonic() + 60 * options.minutes
    cases, found = chosen(options.rows, options), {}
    if options.out.exists():
        with open(options.out, newline="") as file:
            found = {row["case"]: row["verdict"] for row in csv.DictReader(file)}
    left = [case for case in cases if case not in found]
    while left and time.monotonic() < until:
        group, left = left[:CHUNK], left[CHUNK:]
        found |= {case: "not compared" for case in group} | {row["case"]: row["verdict"] for row in compare(group, options, max(1, until - time.monotonic()))}
        with open(options.out, "w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([("case", "verdict"), *found.items()])
    counts = Counter(found[case] for case in cases if case in found)
    compared = sum(counts[verdict] for verdict in ("slower", "faster", "equal", "unresolved"))
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()), f"of {len(cases)} cases")
    if left or not compared:
        print("prove_ab: error: time was up; the same call goes on", file=sys.stderr)
        return 2
    right = counts["slower"] >= LEAST_SHARE * compared if options.slowed else counts["slower"] + counts["faster"] == 0
    return 0 if right and counts["wrong"] + counts["gone"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
