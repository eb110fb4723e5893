"""One problem with all of its variants, or two of them in turns."""

import csv
import re

from tests.cli.program import needs_program, run

pytestmark = needs_program


def test_a_pair_of_equals_on_the_host(tmp_path):
    out = tmp_path / "pairs.csv"
    for _ in range(10):  # beside other tests its threads may have to wait for a core, which it says
        result = run("pair", "gemm", "host", "host", "--device", "host", "--problem", "m=64,n=64,k=64", "--out", out)
        if "not compared: threads waited for a core" not in result.stdout:
            break
        assert result.returncode == 2
    assert result.returncode == 0, result.stderr
    assert re.match(r"m=64,n=64,k=64: cold [0-9.]+ \([0-9.]+ to [0-9.]+\) \w+, warm ", result.stdout), result.stdout
    [row] = csv.DictReader(out.read_text().splitlines())
    assert row["first"] == row["second"] == "host" and float(row["cold"]) > 0 and int(row["rounds"]) >= 12
    refused = run("pair", "gemm", "host", "naive", "--device", "host", "--problem", "m=64,n=64,k=64")
    assert refused.returncode == 2 and "not compared: naive: needs a CUDA device" in refused.stdout


def test_run_compares_variants():
    result = run("run", "gemm", "--device", "host", "--problem", "m=33,n=40,k=24,act=silu")
    assert result.returncode == 0, result.stderr
    assert "host" in result.stdout and "max error" in result.stdout
    refused = run("run", "gemm", "--device", "host", "--problem", "m=33,n=40,k=24", "--variant", "naive")
    assert refused.returncode == 2 and "no_device" in refused.stdout


def test_a_problem_that_does_not_fit_says_so():
    result = run("run", "gemm", "--device", "host", "--problem", "m=1048576,n=1048576,k=64", "--dtype", "fp32")
    assert result.returncode == 2
    assert "out_of_memory" in result.stdout and "GiB" in result.stdout
