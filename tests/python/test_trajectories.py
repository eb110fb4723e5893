"""A short training beside PyTorch's: tools/trajectories, whose figures are of 100 steps and five seeds."""

import os
import subprocess
import sys
from pathlib import Path

import built  # first
import pytest

from tests.cli.program import needs_program

pytest.importorskip("torch", reason="PyTorch is not installed")
TOOL = Path(__file__).parents[2] / "tools" / "trajectories"


@needs_program
@pytest.mark.parametrize(("words", "medians", "code"), [("--dtype fp32 bf16 --batch 4 --steps 4 --seeds 2 --times 5", 2, 0), ("--batch 4 --steps 2 --seeds 1 --times 0.01", 1, 1),
                                                        ("--network unetcu --batch 1 --steps 2 --seeds 1 --times 5", 1, 0)])
def test_losses_are_as_near_to_fp64_as_pytorchs(words, medians, code):
    environment = {**os.environ, "PYTHONPATH": built.FOLDER, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, TOOL, *words.split()], env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == code and done.stdout.count("median") == medians, done.stdout + done.stderr
