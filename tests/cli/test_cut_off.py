"""What a sweep that ended too early leaves to the next."""

import subprocess

from tests.cli.program import PROGRAM, needs_program, rows
from tests.cli.split_sweep import write_rows

pytestmark = needs_program


def test_rows_without_their_counters_are_measured_anew(tmp_path):
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems/gemm.csv").write_text("network,m,n,k,count\nmini,4,16,24,1\nmini,5,16,24,1\n")
    arguments = [PROGRAM, "sweep", "--device", "host", "--problems", tmp_path / "problems", "--networks", "all", "--kinds", "host,tiled", "--dtypes", "bf16", "--out", tmp_path / "run"]
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
