"""What a wheel has: the files that the build installs as component `python`, imported outside of the tree."""

import os
import re
import subprocess
import sys
from pathlib import Path

import built
import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = "import sys; sys.path.insert(0, sys.argv[1]); import noisefloor; print(noisefloor.__file__, noisefloor.ops.gemm.__doc__.split()[0])"


def test_what_is_installed_is_enough(tmp_path):
    subprocess.run(["cmake", "--install", Path(built.FOLDER).parent, "--prefix", tmp_path, "--component", "python"], check=True, capture_output=True)
    assert {path.name for path in tmp_path.iterdir()} == {"noisefloor"}
    names = {path.name for path in (tmp_path / "noisefloor").iterdir()}
    assert {path.name for path in (ROOT / "python/noisefloor").iterdir() if path.is_file()} | {"ops.pyi", "torch.pyi"} < names
    result = subprocess.run([sys.executable, "-I", "-c", CODE, tmp_path], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stdout == f"{tmp_path}/noisefloor/__init__.py gemm(a,\n"


MAIN = "import sys; sys.path.insert(0, sys.argv.pop(1)); from noisefloor._program import main; main()"


def test_the_command_line_is_in_it(tmp_path):
    build = Path(built.FOLDER).parent
    if not (build / "bin" / "noisefloor").exists():
        pytest.skip("this build has no program")

    def run(*arguments):
        return subprocess.run([sys.executable, "-I", "-c", MAIN, tmp_path, *arguments], cwd=tmp_path, capture_output=True, text=True)

    subprocess.run(["cmake", "--install", build, "--prefix", tmp_path, "--component", "python"], check=True, capture_output=True)
    lacking = run("list", "ops")
    assert lacking.returncode == 1 and "this package has no command line that runs here" in lacking.stderr
    subprocess.run(["cmake", "--install", build, "--prefix", tmp_path, "--component", "program"], check=True, capture_output=True)
    assert {path.name for path in tmp_path.iterdir()} == {"noisefloor"}
    problems = run("list", "problems", "--ops", "gemm")
    assert problems.returncode == 0 and "m=" in problems.stdout, problems.stderr
    assert run("--no-such-option").returncode == 2
    linked = subprocess.run(["ldd", tmp_path / "noisefloor" / "bin" / "noisefloor"], capture_output=True, text=True, check=True).stdout
    assert "libfmt.so" not in linked or f"{tmp_path}/noisefloor/" in linked
    for data in ("bench/problems/gemm.csv", "bench/pipeline/weights", "baselines/pytorch/ops/gemm.py"):
        assert (tmp_path / "noisefloor" / data).exists()
    made = run("new-kernel", "groupnorm", "--out", tmp_path / "mine")
    assert made.returncode == 0 and len(list((tmp_path / "mine").iterdir())) == 3, made.stderr


def test_a_wheel_is_built_with_what_the_tests_are_built_with():
    pins = dict(re.findall(r'"([\w-]+)==([\d.]+)"', (ROOT / "pyproject.toml").read_text()))
    tested = dict(re.findall(r"^([\w-]+)==([\d.]+)", (ROOT / "scripts/requirements.txt").read_text(), re.M))
    assert pins["nanobind"] == tested["nanobind"]


GEMM = "import sys; sys.path.insert(0, sys.argv[1]); import numpy, noisefloor; a = numpy.ones((96, 64), 'f'); print(float(noisefloor.ops.gemm(a, a).sum()))"


@pytest.mark.parametrize(("variable", "value"), [("OMP_NUM_THREADS", "100000"), ("OMP_NUM_THREADS", "abc"), ("OMP_STACKSIZE", "100G"), ("OMP_STACKSIZE", "16K")])
def test_openmp_that_makes_no_sense_does_not_end_the_process(variable, value):
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "4", variable: value}
    result = subprocess.run([sys.executable, "-I", "-c", GEMM, built.FOLDER], env=environment, capture_output=True, text=True)
    assert result.returncode == 0 and float(result.stdout) == 96 * 96 * 64, result.stderr
