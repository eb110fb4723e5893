"""Two busy loops beside a sweep of the host: the sweep says so, and a row that had to wait for cores is `throttled`. How right the others are is
printed and not judged: other tests run beside this one, too."""

import json
import os
import subprocess
import sys

from battery import PROGRAM
from tests.cli.program import rows

SIZES = [(1, 256, 256), (32, 256, 128)]


def swept(folder, out):
    """On all cores, as a user starts it: how threads wait is the program's own choice."""
    environment = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS")}
    done = subprocess.run([PROGRAM, "sweep", "--device", "host", "--problems", folder, "--networks", "all", "--counters", "off", "--out", out],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    return {row["problem"]: row for row in rows(out)}, done.stderr


def test_busy_loops(tmp_path, capsys):
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems/gemm.csv").write_text("network,m,n,k,count\n" + "".join(f"mini,{m},{n},{k},1\n" for m, n, k in SIZES))
    quiet, _ = swept(tmp_path / "problems", tmp_path / "quiet")
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        loaded, errors = swept(tmp_path / "problems", tmp_path / "loaded")
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    assert "other programs have" in errors
    environment = json.loads((tmp_path / "loaded" / "env.json").read_text())
    assert environment["load_at_start"] >= 1 and environment["load_at_end"] >= 1
    assert "GOMP_SPINCOUNT" in environment["openmp_waiting"]
    assert all(float(row["load"]) > 0.5 for row in loaded.values())
    for problem, row in loaded.items():
        assert row["status"] in ("ok", "throttled"), row
        if row["status"] == "throttled":
            assert row["throttle"] == "run_queue" and "waited for a core" in row["reason"] and not row["time_cold_us"], row
        with capsys.disabled():
            print(f"\nattack load, {problem}: {row['status']} {row['time_cold_us']} us, {quiet[problem]['time_cold_us']} without loops")
