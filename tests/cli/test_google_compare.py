"""Google Benchmark's own tools/compare.py over two files of --benchmark_out. scripts/setup installs it where there is a package of it."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import needs_program, rows, sweep

COMPARE = Path("/usr/share/benchmark/compare.py")  # of Debian's libbenchmark-tools

pytestmark = [
    needs_program,
    pytest.mark.skipif(not COMPARE.is_file(), reason=f"no {COMPARE} (libbenchmark-tools)"),
    pytest.mark.skipif(importlib.util.find_spec("scipy") is None, reason="compare.py needs scipy"),
]


def compare(*arguments):
    # Nothing is written beside the script, which is of the system.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, COMPARE, "--no-color", *arguments], capture_output=True, text=True, timeout=120, env=environment)


def change(old, new):
    return pytest.approx((float(new["time_cold_us"]) - float(old["time_cold_us"])) / float(old["time_cold_us"]), abs=1e-3)


def test_each_case_of_two_files_is_compared(problems, tmp_path):
    old, new, cases = tmp_path / "old.json", tmp_path / "new.json", {}
    for name in ("old", "new"):
        result = sweep(problems, tmp_path / name, "--variants", "host,naive", f"--benchmark_out={tmp_path / name}.json")  # naive has no time here
        assert result.returncode == 0, result.stderr
        for row in (row for row in rows(tmp_path / name) if row["variant"] == "host"):
            cases.setdefault("/".join(row[column] for column in ("op", "problem", "dtype", "variant")), []).append(row)
    assert len(cases) == 3
    result = compare("--no-utest", "--dump_to_json", tmp_path / "difference.json", "benchmarks", old, new)
    assert result.returncode == 0, result.stderr
    entries = [entry for entry in json.loads((tmp_path / "difference.json").read_text()) if entry["run_type"] == "iteration" and "/host/" in entry["name"]]
    names = [entry["name"] for entry in entries]
    # Behind the case's name Google Benchmark says how it was called.
    assert [re.sub("/iterations:1/manual_time$", "", name) for name in names] == list(cases)
    printed = {line.split()[0]: line.split() for line in result.stdout.splitlines() if line.startswith("gemm/") and "/host/" in line}
    assert list(printed) == names
    for entry, (before, after) in zip(entries, cases.values()):
        [one] = entry["measurements"]
        assert entry["time_unit"] == "us"
        assert one["real_time"] == pytest.approx(float(before["time_cold_us"]), rel=1e-3)
        assert one["real_time_other"] == pytest.approx(float(after["time_cold_us"]), rel=1e-3)
        assert one["time"] == change(before, after)
        assert float(printed[entry["name"]][1]) == change(before, after)
