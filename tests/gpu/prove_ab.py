#!/usr/bin/env python3
"""What `noisefloor ab` says of a build against its copy and of one that is 1 % slower on purpose, over many rows. Run by hand; no test.

usage: prove_ab.py --program NOISEFLOOR --out DIR [--slowed NOISEFLOOR] [--rows RUN] [--cases N] [--slowed-cases N] [--percent P] [--least-us US] [--chunk N]
                   [--minutes M] [-- ARGUMENTS]

ARGUMENTS choose the cases, as those of `noisefloor sweep` and `ab`: --ops, --networks, --dtypes, --device, ... (--kinds: unless said, our kernels).
The rows of a run with these arguments are compared, and their cold times say which are long: RUN, a run folder of this GPU, else a sweep of
--program into DIR/rows. `--program` meets a copy of itself until N rows (default 300) were compared, that is have times in at least five passes.
Then it meets `--slowed`, the same commit built with NOISEFLOOR_TEST_SLOWDOWN_PERCENT, slowed by P % (default 1), until N rows (default 100) of US
microseconds and more (default 20) that were really slowed were compared. 0 rows leave a half out.

The slow-down is a kernel more in each sample, which itself takes about a microsecond. Where that is more than is wanted, cold and warm, the row
is not slowed: counted apart, and not as missed.

`ab` is called for a few problems at a time, evenly over all. Its files are kept in DIR, and what they have is not compared again, so that several
calls make one proof: each stops after --minutes. Then --budget ends the last `ab`, and what that had resolved is kept. DIR/ab.md has the table,
DIR/ab.csv every row.

Exit codes: 0 as it should be; 1 an equal row is slower, faster or wrong, or less than 95 % of the slowed rows are slower; 2 it could not be done,
or time or rows ran out before that (the same call goes on).
"""

import argparse
import csv
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

LEAST_SHARE = 0.95
KINDS = "naive,tiled,tensor_core,ptx"
TIMED = "slower", "faster", "equal", "unresolved"
COLUMNS = "case", "verdict", "warm", "warm_low", "warm_high", "cold", "cold_low", "cold_high", "passes", "reason"
NO_CASE = "not a case of ab"  # of another run's rows
SPENT = "the budget was spent; what the passes before say stands"
SPIN = re.compile(r"test slow-down, (cold|warm): (?:[\d.]+ % wanted, (-?[\d.]+) % reached on|(left as it is))")


class Stop(Exception):
    """It cannot go on: the reason."""


def spread_over(cases, chunk):
    """The cases in groups of `chunk` and more, a problem's together (its tensors and oracle are made once). The first groups, however many, lie evenly
    over all problems."""
    problems = defaultdict(list)
    for case in sorted(cases):
        problems[case.rpartition("/")[0]].append(case)
    order = sorted(enumerate(problems.values()), key=lambda one: one[0] * 0.6180339887498949 % 1)
    groups, group = [], []
    for _, some in order:
        group += some
        if len(group) >= chunk:
            groups.append(group)
            group = []
    return groups + [group] if group else groups


def exactly(cases):
    """A regular expression of ECMAScript that fits these names alone."""
    return "^(" + "|".join(re.sub(r"([.*+?^${}()|\[\]\\])", r"\\\1", case) for case in cases) + ")$"


def final(rows, spent):
    """Those that more passes would leave as they are, and `faster`, which counts against `ab`."""
    return [row for row in rows if not spent or row["verdict"] != "unresolved"]


def reached(log):
    """Case -> what it was slowed by in each phase, in percent, the middle of its passes; no phase that was left as it is in half of them."""
    passes, case = defaultdict(list), None
    for line in log.read_text(errors="replace").splitlines() if log.exists() else ():
        if line.startswith("case "):
            case = line.removeprefix("case ")
            passes[case].append({})
        elif (words := SPIN.match(line)) and case is not None:
            phase, percent, left = words.groups()
            if left:
                passes[case][-1].pop(phase, None)
            else:
                passes[case][-1][phase] = float(percent)
    found = {}
    for case, all_passes in passes.items():
        spun = {phase: [one[phase] for one in all_passes if phase in one] for phase in ("cold", "warm")}
        found[case] = {phase: median(percents) for phase, percents in spun.items() if 2 * len(percents) > len(all_passes)}
    return found


def compared(row):
    return row["verdict"] in TIMED and bool(row["warm"])


class Half:
    """The program against one other build: its files, DIR/<name>-<number>.csv and .log."""

    def __init__(self, options, name, wanted, slowed):
        self.options, self.name, self.wanted, self.slowed = options, name, wanted, slowed
        self.rows, self.reached = {}, {}
        for file in sorted(options.out.glob(f"{name}-*.csv")):
            self._read(file)

    def _read(self, file):
        with open(file, newline="") as text:
            self.rows |= {row["case"]: row for row in csv.DictReader(text)}
        self.reached |= reached(file.with_suffix(".log"))

    def was_slowed(self, case):
        return bool(self.reached.get(case))

    def counted(self):
        return [row for row in self.rows.values() if compared(row) and (not self.slowed or self.was_slowed(row["case"]))]

    def run(self, cases, other, until):
        took = 0.0
        for group in spread_over(cases, self.options.chunk):
            group = [case for case in group if case not in self.rows]
            if not group:
                continue
            if len(self.counted()) >= self.wanted:
                return
            left = until - time.monotonic()
            if left < max(1, took):
                raise Stop(f"{self.name}: out of time after {len(self.counted())} of {self.wanted} rows; the same call goes on")
            spent = self._compare(group, other, left)
            took = max(took, left - (until - time.monotonic()))
            if spent:
                raise Stop(f"{self.name}: out of time after {len(self.counted())} of {self.wanted} rows; the same call goes on")
        if len(self.counted()) < self.wanted:
            raise Stop(f"{self.name}: these arguments have {len(self.counted())} rows, not {self.wanted}")

    def _compare(self, group, other, seconds):
        """Whether the budget was spent."""
        taken = [int(file.stem.rpartition("-")[2]) for file in self.options.out.glob(f"{self.name}-*.csv")]
        file = self.options.out / f"{self.name}-{max(taken, default=0) + 1:03}.csv"
        part, log = file.with_suffix(".part"), file.with_suffix(".log")
        log.unlink(missing_ok=True)
        command = [self.options.program, "ab", self.options.program, other(log), "--filter", exactly(group), "--budget", f"{seconds:.0f}", "--out", part,
                   *self.options.arguments]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if not part.exists() and "no case matches" not in done.stderr:
            raise Stop(f"ab: {(done.stderr or done.stdout).strip()}")
        spent, rows = SPENT in done.stderr, []
        if part.exists():
            with open(part, newline="") as text:
                rows = list(csv.DictReader(text))
        known = {row["case"] for row in rows}
        rows = final(rows, spent) + [{"case": case, "verdict": NO_CASE} for case in group if case not in known]
        if self.slowed and any(map(compared, rows)) and "test slow-down" not in log.read_text(errors="replace"):
            raise Stop(f"{self.options.slowed} said nothing of a slow-down: it is no build with NOISEFLOOR_TEST_SLOWDOWN_PERCENT")
        with open(part, "w", newline="") as text:
            writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        part.rename(file)
        self._read(file)
        return spent


def verdicts(rows):
    return {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in ("slower", "faster", "equal", "unresolved")}


def table(equal, slowed, percent, least_us):
    """The Markdown table, and whether all is as it should be."""
    lines = ["| what | rows | slower | faster | equal | unresolved | wrong or gone | no times | not slowed | on the wrong side |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    right = True
    for half in (equal, slowed):
        if half is None or half.wanted == 0:
            continue
        rows, all_rows = half.counted(), [row for row in half.rows.values() if row["verdict"] != NO_CASE]
        counts = verdicts(rows)
        wrong = sum(row["verdict"] in ("wrong", "gone") for row in all_rows)
        apart = sum(compared(row) for row in all_rows) - len(rows)
        no_times = len(all_rows) - len(rows) - apart - wrong
        if half.slowed:
            share = counts["slower"] / len(rows) if rows else 0
            right &= share >= LEAST_SHARE and wrong == 0
            what, side = f"slowed by {percent:g} %, rows of {least_us:g} us and more", f"{len(rows) - counts['slower'] + wrong}: {100 * share:.1f} % caught"
        else:
            on_wrong_side = counts["slower"] + counts["faster"] + wrong
            right &= on_wrong_side == 0
            what, side = "a build against its copy", f"{on_wrong_side}: {counts['slower']} regressed"
        lines.append(f"| {what} | {len(rows)} | " + " | ".join(map(str, counts.values())) + f" | {wrong} | {no_times} | {apart} | {side} |")
    note = "\n*Not slowed*: the spin's own launch takes longer than what was wanted, cold and warm; not counted among the rows.\n" if slowed is not None else ""
    return "\n".join(lines) + "\n" + note, right


def copied(program, folder):
    """A copy in bin/, with the libraries of a bundle beside it."""
    (folder / "bin").mkdir()
    shutil.copy2(program, folder / "bin" / "noisefloor")
    libraries = program.parent.parent / "lib"
    if libraries.is_dir():
        (folder / "lib").symlink_to(libraries)
    return folder / "bin" / "noisefloor"


def slowed_by(options, folder):
    """log -> a program that is the slowed build and writes there what it says."""
    def make(log):
        script = folder / "slowed"
        words = [sys.executable, Path(__file__).with_name("prove_ab_worker.py").resolve(), options.slowed, f"{options.percent:g}", log.resolve()]
        script.write_text("#!/bin/sh\nexec " + shlex.join(map(str, words)) + ' "$@"\n')
        script.chmod(0o755)
        return script
    return make


def times(options, until):
    """Case -> its cold time, of the run's rows."""
    run = options.rows or options.out / "rows"
    if not options.rows:
        budget = f"{max(1, until - time.monotonic()):.0f}"
        command = [options.program, "sweep", "--out", run, "--budget", budget, "--counters", "off", "--pytorch", "off", "--no-duels", *options.arguments]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode == 2:
            raise Stop(f"the sweep failed: {done.stderr.strip()}")
        if time.monotonic() >= until:
            raise Stop("out of time in the sweep of the rows; the same call goes on")
    with open(run / "sweep.csv", newline="") as file:
        return {"/".join(row[name] for name in ("op", "problem", "dtype", "variant")): float(row["time_cold_us"])
                for row in csv.DictReader(file) if row["status"] == "ok" and row["kind"] not in ("baseline", "network")}


def write_rows(file, halves):
    with open(file, "w", newline="") as text:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("what", *COLUMNS, "slowed_cold_pct", "slowed_warm_pct"))
        for half in halves:
            for row in half.rows.values():
                spun = half.reached.get(row["case"], {})
                by = (f"{spun[phase]:.2f}" if phase in spun else "" for phase in ("cold", "warm"))
                writer.writerow((half.name, *(row[name] for name in COLUMNS), *by))


def parsed(words):
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: "))
    for name in ("program", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    for name in ("slowed", "rows"):
        parser.add_argument(f"--{name}", type=Path)
    for name, kind, default in (("cases", int, 300), ("slowed-cases", int, 100), ("percent", float, 1), ("least-us", float, 20), ("chunk", int, 6),
                                ("minutes", float, 1e6)):
        parser.add_argument(f"--{name}", type=kind, default=default)
    parser.add_argument("arguments", nargs="*")
    options = parser.parse_args(words)
    if options.chunk < 1 or not 0 < options.percent <= 100 or min(options.cases, options.slowed_cases) < 0:
        parser.error("--chunk is at least 1, --percent above 0 and up to 100, --cases and --slowed-cases at least 0")
    if options.slowed_cases > 0 and options.slowed is None:
        parser.error("--slowed names the slowed build; without one say --slowed-cases 0")
    if not any(word.split("=")[0] == "--kinds" for word in options.arguments):
        options.arguments += ["--kinds", KINDS]
    options.program, options.slowed = (path and path.resolve() for path in (options.program, options.slowed))
    return options


def main():
    options = parsed(sys.argv[1:])
    until = time.monotonic() + 60 * options.minutes
    options.out.mkdir(parents=True, exist_ok=True)
    equal = Half(options, "equal", options.cases, slowed=False)
    slowed = Half(options, "slowed", options.slowed_cases, slowed=True)
    why = ""
    try:
        us = times(options, until)
        with tempfile.TemporaryDirectory() as folder:
            copy = copied(options.program, Path(folder))
            equal.run(us, lambda log: copy, until)
            slowed.run([case for case in us if us[case] >= options.least_us], slowed_by(options, Path(folder)), until)
    except (Stop, OSError) as error:
        why = str(error)
    text, right = table(equal, slowed if options.slowed_cases else None, options.percent, options.least_us)
    (options.out / "ab.md").write_text(text)
    write_rows(options.out / "ab.csv", (equal, slowed))
    print(text, end="")
    if why:
        print(f"prove_ab: error: {why}", file=sys.stderr)
        sys.exit(2)
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
