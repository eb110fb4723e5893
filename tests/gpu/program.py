"""The program on a GPU, for tests that are skipped where there is none."""

import csv
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("NOISEFLOOR_BINARY", "")
PYTHON = os.environ.get("NOISEFLOOR_PYTHON") or "python3"


def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=500, stdin=subprocess.DEVNULL)


def need_gpu(words="device 0"):
    """Skips where `noisefloor devices` does not say so."""
    if not Path(PROGRAM).is_file():
        pytest.skip("NOISEFLOOR_BINARY names no program")
    if not shutil.which("nvidia-smi") or words not in run(PROGRAM, "devices").stdout:
        pytest.skip(f"no '{words}' among the devices of this build")


def rows(folder):
    with open(folder / "sweep.csv", newline="") as file:
        return [*csv.DictReader(file)]
