#!/usr/bin/env python3
"""Times of vendors' rows beside Nsight Compute's, over many rows. Run by hand; no test.

usage: prove_times.py --program NOISEFLOOR --out DIR [--rows RUN] [--most N] [--minutes M] [-- SWEEP ARGUMENTS]

Takes N of the libraries' rows of 50 us and more (default 40) of RUN, a run folder of any GPU, evenly over their times; without one, sweeps the rows
that the arguments name into DIR/rows. Captures each under ncu and puts `noisefloor crosscheck` beside it, which measures the row anew. DIR/times.md
has the table. What is there is not done again.

Exit codes: 0 every row that could be judged agrees; 1 one does not; 2 it could not be done, or time ran out (the same call goes on).
"""

import argparse
import csv
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from test_crosscheck import capture

LEAST_US = 50  # below it crosscheck judges no times


def die(text):
    print(f"prove_times: error: {text}", file=sys.stderr)
    sys.exit(2)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: "))
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--most", type=int, default=40)
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("arguments", nargs="*")
    options = parser.parse_args()
    until = time.monotonic() + 60 * options.minutes
    rows = options.rows or options.out / "rows"
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.rows:
        sweep = [options.program, "sweep", "--out", rows, "--kinds", "baseline", "--pytorch", "off", "--counters", "off", "--no-duels",
                 "--budget", f"{60 * options.minutes:.0f}", *options.arguments]
        done = subprocess.run(list(map(str, sweep)), capture_output=True, text=True)
        if done.returncode == 2:
            die(f"the sweep failed: {done.stderr.strip()}")
    with open(rows / "sweep.csv", newline="") as file:
        found = {"/".join(row[name] for name in ("op", "problem", "dtype", "variant")): float(row["time_cold_us"])
                 for row in csv.DictReader(file)
                 if row["status"] == "ok" and row["kind"] == "baseline" and row["variant"].startswith("cu")}
    cases = sorted((case for case, us in found.items() if us >= LEAST_US), key=found.get)
    if len(cases) < options.most:
        die(f"only {len(cases)} rows of {LEAST_US} us and more; --most is {options.most}")
    cases = [cases[i * len(cases) // options.most] for i in range(options.most)]

    codes, lines = [], []
    for i, case in enumerate(cases):
        said = options.out / f"case-{i:02}.txt"
        if not said.exists():
            if time.monotonic() > until:
                die(f"out of time before {case}; the same call goes on")
            try:
                with tempfile.TemporaryDirectory() as folder:
                    [(report, _)] = capture(case, Path(folder), options.program, launches=1)
                    done = subprocess.run([str(options.program), "crosscheck", case, "--report", str(report)], capture_output=True, text=True,
                                          timeout=300)
            except (AssertionError, ValueError, subprocess.TimeoutExpired, pytest.skip.Exception) as error:
                die(f"{case}: {error}")
            said.write_text(f"{done.returncode}\n{done.stdout}{done.stderr}")
        code, *page = said.read_text().splitlines()
        codes.append(int(code))
        lines.append(f"{code} | {case} | {next((line for line in page if line.startswith('time')), '(no time)')}")
    (options.out / "times.md").write_text("exit code of crosscheck | case | its line of time\n---|---|---\n" + "\n".join(lines) + "\n")
    print((options.out / "times.md").read_text(), end="")
    if 0 not in codes and 1 not in codes:
        die("nothing could be judged: the last column says why")
    sys.exit(1 if 1 in codes else 0)


if __name__ == "__main__":
    main()
