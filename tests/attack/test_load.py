"""Two busy loops beside a sweep of the host: a row that says `ok` is as right as without them, or it says that it is not.

By default two short problems, whose times are printed and not judged: other tests run beside this one, so that no time is the machine's at
rest. With NOISEFLOOR_ATTACK_SECONDS=60 or more, on a machine that does nothing else, times are judged, of longer problems and of two sweeps
at once too.
"""

import contextlib
import csv
import json
import os
import subprocess
import sys

import pytest

from battery import PROGRAM, SECONDS

MOST_OFF = 0.15
SWEEP_SECONDS = 300
LONGER = SECONDS >= 60
SHORT = [(1, 256, 256), (32, 256, 128)]
LONG = [(1, 1152, 768), (64, 512, 512), (256, 512, 256), (256, 1024, 512)]


@pytest.fixture
def problems(tmp_path):
    folder = tmp_path / "problems"
    folder.mkdir()
    lines = [f"mini,{m},{n},{k},1\n" for m, n, k in SHORT + LONG * LONGER]
    (folder / "gemm.csv").write_text("network,m,n,k,count\n" + "".join(lines))
    return folder


@contextlib.contextmanager
def busy_loops(count):
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def started(problems, out):
    """On all cores, as a user starts it: how threads wait is the program's own choice."""
    environment = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS")}
    return subprocess.Popen([PROGRAM, "sweep", "--device", "host", "--problems", problems, "--networks", "all", "--counters", "off", "--out", out],
                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)


def finished(process, out):
    _, errors = process.communicate(timeout=SWEEP_SECONDS)
    assert process.returncode == 0, errors
    with open(out / "sweep.csv", newline="") as file:
        return {row["problem"]: row for row in csv.DictReader(file)}, errors


def swept(problems, out):
    return finished(started(problems, out), out)


def held(quiet, rows, name, capsys):
    """Rows that are `ok` are (where times are judged) within MOST_OFF of what the quiet sweeps before and after say; the others are `throttled`
    and say why. The machine itself may be a part of one whose other tenants come and go: then those two differ, and a row may be anywhere between."""
    told = []
    for problem, row in rows.items():
        assert row["status"] in ("ok", "throttled"), row
        if row["status"] == "throttled":
            assert row["throttle"] == "run_queue" and "waited for a core" in row["reason"] and not row["time_cold_us"], row
            continue
        for column in ("time_cold_us", "time_warm_us"):
            times = [float(one[problem][column]) for one in quiet if one[problem]["status"] == "ok"]
            if times:
                off = max(float(row[column]) / max(times), min(times) / float(row[column])) - 1
                told.append((max(0, off), problem, column, row["waited_pct"], row[column], times))
    with capsys.disabled():
        throttled = sum(row["status"] == "throttled" for row in rows.values())
        worst = max((one[0] for one in told), default=0)
        print(f"\nattack load, {name}: {len(told)} times compared, the worst off by {100 * worst:.1f} %; {throttled} of {len(rows)} rows throttled")
    off = [one for one in told if one[0] > MOST_OFF]
    assert not (LONGER and off), off


def test_busy_loops(problems, tmp_path, capsys):
    quiet = [swept(problems, tmp_path / "before")[0]]
    with busy_loops(2):
        rows, errors = swept(problems, tmp_path / "loaded")
    quiet.append(swept(problems, tmp_path / "after")[0])
    assert "other programs have" in errors
    environment = json.loads((tmp_path / "loaded" / "env.json").read_text())
    assert environment["load_at_start"] >= 1 and environment["load_at_end"] >= 1
    assert "GOMP_SPINCOUNT" in environment["openmp_waiting"]
    assert all(float(row["load"]) > 0.5 for row in rows.values())
    held(quiet, rows, "two busy loops", capsys)


@pytest.mark.skipif(not LONGER, reason="NOISEFLOOR_ATTACK_SECONDS is below 60")
def test_two_sweeps_at_once(problems, tmp_path, capsys):
    quiet = [swept(problems, tmp_path / "before")[0]]
    both = [(started(problems, tmp_path / name), tmp_path / name) for name in ("left", "right")]
    found = [finished(process, out)[0] for process, out in both]
    quiet.append(swept(problems, tmp_path / "after")[0])
    for rows in found:
        held(quiet, rows, "two sweeps at once", capsys)
