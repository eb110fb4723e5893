"""which as a user meets it, on a recorded run and on runs that are made up."""

import re
import shutil

import pytest

from tests.cli.gated_runs import RECORDED, write_run
from tests.cli.program import needs_program, run

pytestmark = needs_program
PROBLEM = "m=1024,n=1152,k=384"


def test_a_problem_of_a_recorded_run():
    result = run("which", "gemm", "k=384,m=1024,n=1152,act=none", "--run", RECORDED)
    assert result.returncode == 0 and not result.stderr
    lines = [line.split() for line in result.stdout.splitlines() if re.match(r"[a-z_0-9]+ +[0-9.]+ ", line)]
    times = [float(line[1]) for line in lines]
    assert lines[0][0] == "ptx_sm90a" and times == sorted(times) and {"cublaslt", "torch_eager", "naive"} <= {line[0] for line in lines}
    assert "in turns" in result.stdout and "unsupported_problem" in result.stdout and 'variant="ptx_sm90a")' in result.stdout
    fp32 = run("which", "gemm", PROBLEM, "--run", RECORDED, "--dtype", "fp32")
    assert fp32.returncode == 0 and f"gemm/{PROBLEM}/fp32" in fp32.stdout


def test_all_problems_of_a_network(tmp_path):
    table = tmp_path / "table.md"
    result = run("which", "--networks", "adm64-b1,edm-cifar-b1", "--ops", "gemm,layernorm,groupnorm", "--run", RECORDED, "--markdown", table)
    assert result.returncode == 0 and not result.stderr
    assert f"\n{PROBLEM} " in result.stdout and "adm64-b1 x7" in result.stdout and " slower" in result.stdout
    lines = [line for line in table.read_text().splitlines() if line.startswith("| m=") or line.startswith("| n=")]
    assert lines and len({line.count(" | ") for line in lines}) == 2, "as many columns as its op has baselines"


def test_without_run_it_reads_the_newest(tmp_path):
    (tmp_path / "runs" / "device").mkdir(parents=True)
    none = run("which", "gemm", "m=1,n=64,k=64", cwd=tmp_path / "runs")
    assert none.returncode == 2 and "nvidia-h200" in none.stderr
    shutil.move(write_run(tmp_path / "r", [50.0]), tmp_path / "runs" / "device" / "time")
    result = run("which", "gemm", "m=1,n=64,k=64", cwd=tmp_path)
    assert result.returncode == 0 and "runs/device/time" in result.stdout


@pytest.mark.parametrize("arguments, says", [
    (["gemm", "m=1024,n=1150,k=384"], PROBLEM),
    (["gemn", PROBLEM], "gemm"),
    (["gemm", PROBLEM, "--dtype", "fp8"], "bf16"),
    (["gemm", "m=1024"], "field"),
    (["--networks", "adm65-b1"], "adm64-b1"),
    (["--networks", "adm64-b1", "--ops", "gemn"], "gemm"),
    (["gemm", PROBLEM, "--networks", "adm64-b1"], "--networks"),
    (["gemm"], "--networks"),
])
def test_what_a_run_lacks_is_named_with_what_it_has(arguments, says):
    result = run("which", *arguments, "--run", RECORDED)
    assert result.returncode == 2 and says in result.stderr and not result.stdout
