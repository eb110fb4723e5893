#!/usr/bin/env python3
"""What `noisefloor gate` says of equal builds and of one that is slower on purpose, over many rows. Run by hand; no test.

usage: prove_gate.py --program NOISEFLOOR --slowed NOISEFLOOR --out DIR [--sweeps N] [--fit N | --judge-by DIR] [--percent P,...] [--minutes M]
                     [-- SWEEP ARGUMENTS]

`--program` is swept N times (default 6), each in a process of its own. The first of them (--fit, default half) measure the spread between
processes and set the gate's threshold; the others alone are judged, each run against each earlier one of them: nothing may regress. With
--judge-by, the equal runs of another proof, of another GPU or day, set the threshold, and all of this one are judged; with --fit 0, the table that
the program has of this GPU does. Then
`--slowed`, the same commit built with NOISEFLOOR_TEST_SLOWDOWN_PERCENT, is swept once for each P (default 5,3): a slow-down of 5 % is to be found
in every row of 3 us and more, one of 3 % in every row of 20 us and more (cold times); other rows are not swept. Sweeps that are there are resumed, and those that are
whole are left alone, so that several calls make one proof: each stops after --minutes. Several machines share the cases by --ops, not by --shard. The last may be made on a machine without a GPU. At the end DIR/proof.md has the table, DIR/missed.csv the rows on the wrong side.

Exit codes: 0 as it should be; 1 rows on the wrong side; 2 it could not be done, or time ran out before the last sweep (the same call goes on).
"""

import argparse
import csv
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from itertools import combinations
from pathlib import Path

LEAST_US = {5.0: 3.0, 3.0: 20.0}  # of rows in which a slow-down of so many percent has to be found
KEY = "op", "dtype", "problem", "variant"
NOISE = "gate_noise.json"
MARGIN = 0.9  # of a slowed sweep's rows: in the sweep that it is judged against they may take longer than in the first


def die(text):
    print(f"prove_gate: error: {text}", file=sys.stderr)
    sys.exit(2)


def sweep(program, folder, arguments, until, percent=None):
    whole = folder.with_name(f"{folder.name}.whole")
    if whole.exists():
        return
    budget = until - time.monotonic()
    if budget < 1:
        die(f"out of time before {folder.name}; the same call goes on")
    environment = os.environ | ({} if percent is None else {"NOISEFLOOR_TEST_SLOWDOWN_PERCENT": f"{percent:g}"})
    command = [program, "sweep", "--out", folder, "--budget", f"{budget:.0f}", "--counters", "off", "--pytorch", "off", "--no-duels", *arguments]
    with open(f"{folder}.log", "a") as log:
        if subprocess.run(list(map(str, command)), stdout=log, stderr=log, env=environment).returncode == 2:
            die(f"the sweep {folder.name} failed: see {folder}.log")
    if time.monotonic() >= until:
        die(f"out of time in {folder.name}; the same call goes on")
    whole.touch()


def times(folder):
    with open(folder / "sweep.csv", newline="") as file:
        return {tuple(row[name] for name in KEY): float(row["time_cold_us"]) for row in csv.DictReader(file) if row["status"] == "ok"}


def rows_from(folder, us):
    """Arguments that choose the rows of this time and more."""
    names = ["/".join((op, problem, dtype, variant)) for (op, dtype, problem, variant), time_us in times(folder).items() if time_us >= us]
    return ["--benchmark_filter=^(" + "|".join(re.sub(r"([.*+?^${}()|\[\]\\])", r"\\\1", name) for name in names) + ")$"]


def gate(program, baseline, candidate):
    """By row: '' (nothing), 'failure' or 'skipped' (ambiguous, or not compared)."""
    report = candidate.parent / f"{baseline.name}-{candidate.name}.xml"
    command = [program, "gate", "--baseline", baseline, "--candidate", candidate, "--junit", report]
    report.unlink(missing_ok=True)
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if not report.exists():  # 2 with a report: a row failed in the baseline
        die(f"gate of {candidate.name}: {done.stderr.strip()}")
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        op, _, dtype = case.get("classname").rpartition(".")
        problem, _, variant = case.get("name").rpartition(" ")
        if op != "launches":
            found[op, dtype, problem, variant] = case[0].tag if len(case) else ""
    return found


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: "))
    for name in ("program", "slowed", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--sweeps", type=int, default=6)
    parser.add_argument("--fit", type=int)
    parser.add_argument("--judge-by", type=Path)
    parser.add_argument("--percent", default="5,3")  # empty: equal runs alone
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("arguments", nargs="*")
    options = parser.parse_args()
    percents = [float(word) for word in options.percent.split(",") if word]
    own_fit = options.fit != 0 and options.judge_by is None
    if options.sweeps < (4 if own_fit else 1) or not set(percents) <= set(LEAST_US):
        die("--sweeps is at least 4, or 1 with --judge-by or --fit 0, and --percent of 5 and 3")
    if options.fit is not None and options.judge_by:
        die("--fit and --judge-by: give one")
    if any(word.startswith("--shard") for word in options.arguments):
        die("--shard: slowed sweeps choose their rows from the equal one's, which a part may lack; cut the cases by --ops")
    fit = (options.fit or options.sweeps // 2) if own_fit else 0
    if own_fit and not 2 <= fit <= options.sweeps - 2:
        die(f"--fit is {fit}, not 2 to {options.sweeps - 2}")
    until = time.monotonic() + 60 * options.minutes
    options.out.mkdir(parents=True, exist_ok=True)
    runs = [options.out / f"equal-{i}" for i in range(1, options.sweeps + 1)]
    slow = {percent: options.out / f"slowed-{percent:g}" for percent in percents}
    for run in runs:
        sweep(options.program, run, options.arguments, until)
    for percent, run in slow.items():
        sweep(options.slowed, run, options.arguments + rows_from(runs[0], MARGIN * LEAST_US[percent]), until, percent)

    fitted, judged = runs[:fit], runs[fit:]
    if options.judge_by:
        fitted, judged = sorted(path for path in options.judge_by.glob("equal-*") if path.is_dir()), runs
        if len(fitted) < 2:
            die(f"--judge-by: {options.judge_by} has {len(fitted)} equal runs, not two and more")
    if fitted:
        done = subprocess.run(list(map(str, [options.program, "gate", "--baseline", fitted[0], "--spread", *fitted])), capture_output=True, text=True)
        if done.returncode != 0:
            die(f"gate --spread: {done.stderr.strip()}")
    for run in judged:
        (run / NOISE).unlink(missing_ok=True)
        if fitted:
            (run / NOISE).write_bytes((fitted[0] / NOISE).read_bytes())

    wrong, lines = [], []

    def judge(what, baseline, candidate, least_us, wanted):
        us = times(baseline)
        rows = {key: verdict for key, verdict in gate(options.program, baseline, candidate).items() if us.get(key, 0) >= least_us}
        missed = [key for key, verdict in rows.items() if (verdict == "failure") != wanted]
        ambiguous = sum(verdict == "skipped" for verdict in rows.values())
        wrong.extend((what, candidate.name, *key, us[key], rows[key]) for key in missed)
        return len(rows), len(missed), ambiguous

    if equal := [judge("equal", a, b, 0, wanted=False) for a, b in combinations(judged, 2)]:
        rows, regressed, ambiguous = map(sum, zip(*equal))
        lines.append(f"| equal builds, {len(equal)} pairs of runs | {rows} | {regressed} regressed | {ambiguous} |")
    for percent, run in slow.items():
        rows, missed, ambiguous = judge(f"slowed by {percent:g} %", judged[0], run, LEAST_US[percent], wanted=True)
        lines.append(f"| {percent:g} % slower, rows of {LEAST_US[percent]:g} us and more | {rows} | {missed} missed | {ambiguous} |")
    table = "| what | rows compared | on the wrong side | ambiguous |\n|---|---|---|---|\n" + "\n".join(lines) + "\n"
    (options.out / "proof.md").write_text(table)
    with open(options.out / "missed.csv", "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("what", "run", *KEY, "time_cold_us", "verdict"), *wrong])
    print(table, end="")
    sys.exit(1 if wrong else 0)


main()
