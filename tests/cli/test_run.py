"""One problem with all of its variants."""

from tests.cli.program import needs_program, run

pytestmark = needs_program


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
