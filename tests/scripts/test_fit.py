"""What scripts/fit refuses before it builds; the search and its input are tested in tests/bench/fit."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("arguments, code, message", [
    (["--help"], 0, "usage: scripts/fit gemm|im2col|halo TIMINGS.csv"),
    ([], 2, "needs a kernel: gemm, im2col or halo"),
    (["conv2d", "a.csv"], 2, "needs a kernel: gemm, im2col or halo"),
    (["gemm"], 2, "needs a file of timings"),
    (["gemm", "--seed", "1"], 2, "needs a file of timings"),
    (["halo", "/nowhere/times.csv"], 2, "there is no file /nowhere/times.csv; 'noisefloor tune conv2d --out /nowhere/times.csv' writes it"),
])
def test_script(arguments, code, message):
    result = subprocess.run([ROOT / "scripts/fit", *arguments], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert result.returncode == code and message in result.stdout + result.stderr, result.stderr
