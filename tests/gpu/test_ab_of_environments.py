"""`noisefloor ab --python` of PyTorch's kernels on a GPU. Skipped where there is no GPU, or no Python with a PyTorch that sees it."""

import csv
import shlex
import shutil

import pytest

from tests.gpu.program import PROGRAM, PYTHON, need_gpu, run

BENCH = """
import os
import torch

torch.set_grad_enabled(False)
NEW = os.environ["SIDE"] == "new"

def setup(problem):
    return {"x": torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)}

def launch_twice(problem, t):
    return [t.x @ t.x for _ in range(2 if NEW else 1)][-1]

def launch_other_kernel(problem, t):
    return (t.x + t.x).exp() if NEW else (t.x * 2).exp()

def launch_waits(problem, t):
    return t.x[t.x > t.x.mean().item()]
"""


@pytest.fixture
def sides(tmp_path):
    need_gpu()
    if run(PYTHON, "-c", "import torch; assert torch.cuda.is_available()").returncode != 0:
        pytest.skip(f"{PYTHON} has no PyTorch that sees the GPU")
    (tmp_path / "bench.py").write_text(BENCH)
    for side in ("old", "new"):
        (tmp_path / side).write_text(f'#!/bin/sh\nSIDE={side} exec {shlex.quote(shutil.which(PYTHON))} "$@"\n')
        (tmp_path / side).chmod(0o755)
    return tmp_path


def test_kernels_times_and_cycles(sides):
    out = sides / "ab.csv"
    result = run(PROGRAM, "ab", "--python", sides / "old", "--python", sides / "new", "--out", out, "--", sides / "bench.py")
    assert result.returncode == 1, result.stderr
    with open(out, newline="") as file:
        rows = {row["case"]: row for row in csv.DictReader(file)}
    twice = rows["twice"]
    assert twice["verdict"] == "slower" and 0.4 < float(twice["warm"]) < 0.6 and 0.4 < float(twice["cycles"]) < 0.6, twice
    assert rows["other_kernel"]["warm"], "the same to the last bit"
    assert rows["waits"]["verdict"] == "missing" and "graph = False" in rows["waits"]["reason"]
    kernels = next(line for line in result.stdout.splitlines() if line.startswith("other_kernel ") and "elementwise" in line)
    assert "the same bits" in kernels, result.stdout
