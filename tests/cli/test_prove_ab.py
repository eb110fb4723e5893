"""tests/gpu/prove_ab.py: on builds with scripted times, and what it reads and chooses."""

import csv
import json
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.program import PROGRAM, ROOT, needs_program
from tests.gpu import prove_ab

STUB = Path(__file__).with_name("stub_build.py")
PROBLEMS = ["m=8,n=16,k=24", "m=16,n=16,k=8", "m=4,n=8,k=8"]
CASES = [f"gemm/{problem}/bf16/host" for problem in PROBLEMS]
SPUN = "test slow-down, cold: 1.00 % wanted, 0.90 % reached on 25.00 us\ntest slow-down, cold: left as it is\n" \
       "test slow-down, warm: 1.00 % wanted, 1.02 % reached on 24.00 us\n"
LEFT = "test slow-down, cold: left as it is\ntest slow-down, warm: left as it is\n"


@pytest.fixture
def prove(problems, tmp_path):
    """prove(equal script, slowed script, times, more...): its process, and the rows of ab.csv by half and problem."""
    def stub(name, script):
        program = tmp_path / name
        text = json.dumps({"us": 10.0, **script})
        program.write_text(f"#!/bin/sh\n[ \"$1\" = worker ] || exec {shlex.quote(PROGRAM)} \"$@\"\n"
                           f"exec {shlex.quote(sys.executable)} {shlex.quote(str(STUB))} {shlex.quote(text)} \"$@\"\n")
        program.chmod(0o755)
        return program

    def prove(equal, slowed, us, *more):
        rows, out = tmp_path / "rows", tmp_path / "out"
        rows.mkdir(exist_ok=True)
        with open(rows / "sweep.csv", "w", newline="") as file:
            csv.writer(file).writerows([("op", "dtype", "problem", "variant", "kind", "status", "time_cold_us"),
                                        *(("gemm", "bf16", problem, "host", "host", "ok", one) for problem, one in zip(PROBLEMS, us))])
        command = [sys.executable, ROOT / "tests/gpu/prove_ab.py", "--program", stub("program", equal), "--slowed", stub("slow", slowed), "--rows", rows,
                   "--out", out, "--chunk", "1", *more, "--", "--problems", problems, "--networks", "all", "--kinds", "host"]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=500)
        with open(out / "ab.csv", newline="") as file:
            found = {(row["what"], row["case"].split("/")[1]): row for row in csv.DictReader(file)}
        return done, found
    return prove


def says(*words):
    return dict(zip(PROBLEMS, words))


@needs_program
def test_all_is_as_it_should_be(prove):
    done, rows = prove({}, {"us": 10.1, "says": says(SPUN, SPUN, SPUN)}, [30, 25, 5], "--cases", "3", "--slowed-cases", "2")
    assert done.returncode == 0, done.stderr
    assert "| a build against its copy | 3 | 0 | 0 | 3 | 0 | 0 | 0 | 0 | 0: 0 regressed |" in done.stdout
    assert "| slowed by 1 %, rows of 20 us and more | 2 | 2 | 0 | 0 | 0 | 0 | 0 | 0 | 0: 100.0 % caught |" in done.stdout
    assert set(rows) == {("equal", problem) for problem in PROBLEMS} | {("slowed", problem) for problem in PROBLEMS[:2]}, "the third is too short"
    assert rows["slowed", PROBLEMS[0]]["slowed_cold_pct"] == "" and rows["slowed", PROBLEMS[0]]["slowed_warm_pct"] == "1.02"


@needs_program
def test_a_row_that_could_not_be_slowed_is_no_missed_one(prove):
    slowed = {"us": 10.1, "us_of": {PROBLEMS[1]: 10.0}, "says": says(SPUN, LEFT, SPUN)}
    done, _ = prove({}, slowed, [30, 25, 40], "--cases", "0", "--slowed-cases", "2")
    assert done.returncode == 0, done.stderr
    assert re.search(r"\| slowed by .* \| 2 \| 2 \| 0 \| 0 \| 0 \| 0 \| 0 \| [01] \| 0: 100.0 % caught \|", done.stdout)
    done, rows = prove({}, slowed, [30, 25, 40], "--cases", "0", "--slowed-cases", "3")
    assert done.returncode == 2 and "these arguments have 2 rows, not 3" in done.stderr
    assert "| 2 | 2 | 0 | 0 | 0 | 0 | 0 | 1 | 0: 100.0 % caught |" in done.stdout and rows["slowed", PROBLEMS[1]]["verdict"] == "equal"


@needs_program
def test_slowed_rows_that_are_missed(prove):
    done, _ = prove({}, {"us_of": {PROBLEMS[0]: 10.1}, "says": says(SPUN, SPUN, SPUN)}, [30, 25, 40], "--cases", "0", "--slowed-cases", "3")
    assert done.returncode == 1 and "| 3 | 1 | 0 | 2 | 0 | 0 | 0 | 0 | 2: 33.3 % caught |" in done.stdout


@needs_program
def test_a_slowed_build_that_is_wrong(prove):
    slowed = {"us": 10.1, "says": says(SPUN, SPUN, SPUN), "fail": {PROBLEMS[0]: {"wrong": "d[0] is 1, not 2", "errors": []}}}
    done, rows = prove({}, slowed, [30, 25, 40], "--cases", "0", "--slowed-cases", "2", "--chunk", "3")
    assert done.returncode == 1 and "| 2 | 2 | 0 | 0 | 0 | 1 | 0 | 0 | 1: 100.0 % caught |" in done.stdout
    assert rows["slowed", PROBLEMS[0]]["verdict"] == "wrong"


@needs_program
def test_it_goes_on_where_time_ran_out(prove):
    slowed = {"us": 10.1, "says": says(SPUN, SPUN, SPUN)}
    done, rows = prove({}, slowed, [30, 25, 40], "--cases", "3", "--slowed-cases", "3", "--minutes", "1e-9")
    assert done.returncode == 2 and "out of time after 0 of 3 rows; the same call goes on" in done.stderr and not rows
    done, rows = prove({}, slowed, [30, 25, 40], "--cases", "1", "--slowed-cases", "1")
    assert done.returncode == 0 and len(rows) == 2
    done, rows = prove({"us": 20.0}, {**slowed, "us": 20.2}, [30, 25, 40], "--cases", "3", "--slowed-cases", "3")
    assert done.returncode == 0 and len(rows) == 6


@needs_program
def test_a_build_that_slows_nothing_is_refused(prove):
    done, rows = prove({}, {}, [30, 25, 40], "--cases", "0", "--slowed-cases", "3")
    assert done.returncode == 2 and "it is no build with NOISEFLOOR_TEST_SLOWDOWN_PERCENT" in done.stderr and not rows


@needs_program
def test_a_slowed_build_that_is_killed_is_not_wrong(prove, tmp_path):
    slowed = {"us": 10.1, "says": says(SPUN, SPUN, SPUN), "kill": PROBLEMS[0], "starts": str(tmp_path / "starts"), "spared_at": [4]}
    done, rows = prove({}, slowed, [30, 25, 40], "--cases", "0", "--slowed-cases", "2", "--chunk", "3")
    assert done.returncode == 0 and "| 2 | 2 | 0 | 0 | 0 | 0 | 1 | 0 | 0: 100.0 % caught |" in done.stdout, done.stderr
    assert rows["slowed", PROBLEMS[0]]["verdict"] == "unresolved" and "was killed by signal 9" in rows["slowed", PROBLEMS[0]]["reason"]


def test_a_budget_that_is_spent_on_the_way(tmp_path):
    """A program whose `ab` says so."""
    program = tmp_path / "program"
    lines = "\n".join([",".join(prove_ab.COLUMNS), '"gemm/a=1/bf16/host",equal,1,1,1,1,1,1,5,', '"gemm/a=2/bf16/host",unresolved,1,1,1,1,1,1,6,'])
    program.write_text(f"#!{sys.executable}\nimport sys\nopen(sys.argv[sys.argv.index('--out') + 1], 'w').write({lines!r})\nsys.exit({prove_ab.SPENT!r})\n")
    program.chmod(0o755)
    options = prove_ab.parsed(["--program", str(program), "--out", str(tmp_path), "--slowed-cases", "0", "--cases", "2"])
    half = prove_ab.Half(options, "equal", 2, slowed=False)
    with pytest.raises(prove_ab.Stop, match="out of time after 1 of 2 rows"):
        half.run(["gemm/a=1/bf16/host", "gemm/a=2/bf16/host"], lambda log: program, time.monotonic() + 100)
    again = prove_ab.Half(options, "equal", 2, slowed=False)
    assert list(again.rows) == ["gemm/a=1/bf16/host"]


def test_of_what_a_spent_budget_leaves_only_what_is_settled_is_kept():
    rows = [{"verdict": verdict} for verdict in ("slower", "faster", "equal", "unresolved", "wrong", "missing")]
    assert prove_ab.final(rows, spent=False) == rows
    assert [row["verdict"] for row in prove_ab.final(rows, spent=True)] == ["slower", "faster", "equal", "wrong", "missing"]


def test_groups_are_whole_problems_evenly_over_all():
    cases = [f"op/n={n}/bf16/{variant}" for n in range(10, 90) for variant in "ab"]
    groups = prove_ab.spread_over(cases, 3)
    assert sorted(case for group in groups for case in group) == cases
    assert all(len(group) == 4 for group in groups)
    assert all(a.rpartition("/")[0] == b.rpartition("/")[0] for group in groups for a, b in zip(group[::2], group[1::2]))
    first = sorted(int(case[5:7]) for group in groups[:10] for case in group[::2])
    assert max(b - a for a, b in zip(first, first[1:])) <= 8


def test_names_are_no_patterns():
    case = "conv2d/n=1,norm=affine+silu/bf16/ptx"
    assert re.search(prove_ab.exactly(["x", case]), case) and not re.search(prove_ab.exactly([case]), case + "_sm90a")


def test_a_phase_is_slowed_where_it_was_in_most_passes(tmp_path):
    log = tmp_path / "log"
    log.write_text(f"a warning\ncase {CASES[0]}\n{SPUN}case {CASES[1]}\n{LEFT}case {CASES[0]}\n{LEFT}case {CASES[0]}\n{SPUN.replace('1.02', '0.98')}")
    assert prove_ab.reached(log) == {CASES[0]: {"warm": 1.0}, CASES[1]: {}}
    assert prove_ab.reached(tmp_path / "none") == {}
