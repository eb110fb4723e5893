#!/usr/bin/env python3
"""Whether a duel's interval holds what other processes find: the same duels in several processes. Run by hand; no test.

usage: prove_duels.py --program NOISEFLOOR --out DIR [--processes N] [--device D] OP,FIRST,SECOND,NETWORK...

Each word is one `noisefloor duel`: all problems of NETWORK that OP has, FIRST against SECOND. All are fought in N processes (default 5). An
interval (19 in 20) of each process either contains the pooled ratio of a problem, the geometric mean over the other processes, or not. DIR/duels.csv has every
interval, DIR/duels.md the shares. Processes whose file is there are not run again.

Exit codes: 0 at least nine intervals in ten contain the pooled ratio, cold and warm; 1 fewer do; 2 it could not be done.
"""

import argparse
import csv
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from statistics import geometric_mean, median

KEY = "op", "dtype", "problem", "first", "second"
LEAST_SHARE = 0.9


def die(text):
    print(f"prove_duels: error: {text}", file=sys.stderr)
    sys.exit(2)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: "))
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--device", default="0")
    parser.add_argument("duels", nargs="+")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.processes < 2:
        die("--processes is at least 2")

    found = defaultdict(list)  # problem -> a row a process
    for process in range(options.processes):
        for duel in options.duels:
            if duel.count(",") != 3:
                die(f"'{duel}' is not OP,FIRST,SECOND,NETWORK")
            op, first, second, network = duel.split(",")
            file = options.out / f"{op}-{first}-{second}-{network}-{process}.csv"
            if not file.exists():
                command = [options.program, "duel", op, first, second, "--networks", network, "--device", options.device, "--out", file]
                done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
                if done.returncode != 0:
                    die(f"{duel}: {(done.stderr or done.stdout).strip()}")
            with open(file, newline="") as text:
                for row in csv.DictReader(text):
                    found[tuple(row[name] for name in KEY)].append(row)

    lines, few = ["| phase | problems | intervals | contain the pooled ratio | median half width |", "|---|---|---|---|---|"], False
    rows = []
    for phase in ("cold", "warm"):
        inside, widths = [], []
        for key, fought in found.items():
            for process, row in enumerate(fought):
                pooled = geometric_mean(float(other[phase]) for other in fought if other is not row)
                low, high = float(row[f"{phase}_low"]), float(row[f"{phase}_high"])
                inside.append(low <= pooled <= high)
                widths.append((high - low) / 2)
                rows.append((phase, *key, process, row[phase], low, high, f"{pooled:.5g}", int(inside[-1])))
        share = sum(inside) / len(inside)
        few |= share < LEAST_SHARE
        lines.append(f"| {phase} | {len(found)} | {len(inside)} | {100 * share:.1f} % | {100 * median(widths):.2f} % |")
    table = "\n".join(lines) + "\n"
    (options.out / "duels.md").write_text(table)
    with open(options.out / "duels.csv", "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("phase", *KEY, "process", "ratio", "low", "high", "pooled", "inside"), *rows])
    print(table, end="")
    sys.exit(1 if few else 0)


main()
