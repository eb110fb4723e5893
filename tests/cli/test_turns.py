"""Sweeps that share a device, and what a sweep that ended too early leaves to the next."""

import os
import subprocess
import time

import pytest

from tests.cli.program import PROGRAM, needs_program, rows
from tests.cli.split_sweep import write_rows
from tests.support.locks import held

pytestmark = needs_program


@pytest.fixture
def arguments(tmp_path):
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems/gemm.csv").write_text("network,m,n,k,count\nmini,4,16,24,1\nmini,5,16,24,1\n")
    return [PROGRAM, "sweep", "--device", "host", "--problems", tmp_path / "problems", "--networks", "all", "--out", tmp_path / "run"]


def in_turns(arguments, folder, *more):
    """Started, and waiting for its turn."""
    process = subprocess.Popen([*arguments, "--take-turns", *more], env=os.environ | {"TMPDIR": str(folder)}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while "waiting" not in (line := process.stderr.readline()):
        assert line, "it ended"
    return process


def test_a_sweep_waits_for_its_turn(arguments, tmp_path):
    with held(tmp_path / f"noisefloor-{os.getuid()}-host.turn"):
        process = in_turns(arguments, tmp_path)
        assert not (tmp_path / "run").exists()
    assert "gemm" in process.communicate(timeout=300)[1] and process.returncode == 0
    assert len(rows(tmp_path / "run")) == 2


def test_waiting_counts_against_the_budget(arguments, tmp_path):
    with held(tmp_path / f"noisefloor-{os.getuid()}-host.turn"):
        process = in_turns(arguments, tmp_path, "--budget", "0.2")
        time.sleep(0.2)
    assert "2 cases left by --budget" in process.communicate(timeout=300)[1] and process.returncode == 0


def test_a_file_that_is_not_ours_is_named(arguments, tmp_path):
    (tmp_path / f"noisefloor-{os.getuid()}-host.turn").mkdir()
    result = subprocess.run([*arguments, "--take-turns"], env=os.environ | {"TMPDIR": str(tmp_path)}, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2 and "-host.turn: " in result.stderr
    result = subprocess.run([*arguments, "--take-turns"], env=os.environ | {"TMPDIR": str(tmp_path / "none")}, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2 and "(TMPDIR) cannot be used" in result.stderr


def test_rows_without_their_counters_are_measured_anew(arguments, tmp_path):
    arguments += ["--kinds", "host,tiled", "--dtypes", "bf16"]
    assert subprocess.run(arguments, capture_output=True, timeout=300).returncode == 0
    of_another_gpu = [row | {"gpu_uuid": "GPU-1"} for row in rows(tmp_path / "run")]
    assert [row["variant"] for row in of_another_gpu] == ["host", "tiled", "host", "tiled"]
    of_another_gpu[2]["counter_status"] = "cut_off"
    write_rows(tmp_path / "run", of_another_gpu)
    result = subprocess.run(arguments, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0 and "1 rows are measured anew" in result.stderr and "2 cases are already in" in result.stderr, result.stderr
    assert "1 rows of another" in result.stderr, "its problem is of one GPU"
    again = rows(tmp_path / "run")
    assert [row["gpu_uuid"] for row in again] == ["GPU-1", "GPU-1", "", ""] and "cut_off" not in {row["counter_status"] for row in again}
    assert len((tmp_path / "run/samples.jsonl").read_text().splitlines()) == 2
