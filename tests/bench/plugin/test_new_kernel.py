"""noisefloor new-kernel: what it writes is a plugin that loads as it stands, and measures what is written into it."""

import itertools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import ROOT, needs_libpython, needs_program, rows, run

pytestmark = needs_program
OPS = sorted(path.stem for path in (ROOT / "tests/problems").glob("*.csv"))
NVCC = shutil.which("nvcc") or next((str(path) for path in Path("/usr/local").glob("cuda*/bin/nvcc")), None)
needs_gcc = pytest.mark.skipif(not shutil.which("g++"), reason="no g++")
PYTHON = {**os.environ, "NOISEFLOOR_PYTHON": sys.executable}
GEMM_CPP = """\
  for (int64_t i = 0; i < fields.m * fields.n; ++i) {
    float sum = tensors.bias ? tensors.bias[i % fields.n] : 0;
    for (int64_t l = 0; l < fields.k; ++l) sum += tensors.a[i / fields.n * fields.k + l] * tensors.b[i % fields.n * fields.k + l];
    tensors.d[i] = sum;
  }
"""


def build(folder, op):
    """By the file's own line, with warnings as errors."""
    line = next(line for line in (folder / f"{op}.cu").read_text().splitlines() if line.startswith("// g++"))
    subprocess.run([*line.removeprefix("// ").replace("-O2", "-O0").split(), "-Wall", "-Wextra", "-Werror"], cwd=folder, check=True)
    return "--plugin", folder / f"{op}.so"


def statuses(tmp_path, name, plugins):
    """By op, of its tiny problems."""
    result = run("sweep", "--device", "host", "--problems", ROOT / "tests/problems", "--out", tmp_path / "run", "--networks", "tiny", "--dtypes", "fp32",
                 "--variants", name, *plugins, env=PYTHON)  # fmt: skip
    assert result.returncode == 1, result.stderr
    found = {}
    for row in rows(tmp_path / "run"):
        found.setdefault(row["op"], set()).add(row["status"])
    return found


@needs_libpython
def test_python_of_every_op_loads_and_is_not_ok(tmp_path):
    plugins = []
    for op in OPS:
        made = run("new-kernel", op, "--out", tmp_path)
        assert made.returncode == 0 and f"{op}_python.py" in made.stdout, made.stderr
        plugins += ["--plugin", tmp_path / f"{op}_python.py"]
    assert statuses(tmp_path, "my_python", plugins) == {op: {"cuda_error"} for op in OPS}, "launch raises"


@needs_gcc
def test_cpp_of_every_op_builds_and_is_incorrect(tmp_path):
    plugins, ops = [], [op for op in OPS if op != "groupnorm"]  # whose example is for GPUs
    for op in ops:
        assert run("new-kernel", op, "--out", tmp_path).returncode == 0
        plugins += build(tmp_path, op)
    assert "void* y = " in (tmp_path / "elementwise.cu").read_text(), "a cast's type is field `to`"
    for file in ("gemm.cu", "gemm_python.py"):
        assert "  b_rows = n*(1 + (act=geglu))" in (tmp_path / file).read_text().replace("//", " "), "what the shapes call by a name"
    assert statuses(tmp_path, "my_host", plugins) == {op: {"incorrect"} for op in ops}
    half = run("run", "gemm", "--plugin", tmp_path / "gemm.so", "--variant", "my_host", "--problem", "m=4,n=4,k=4", "--dtype", "fp16", "--device", "host")
    assert half.returncode == 2 and "needs nvcc" in half.stdout, half.stdout + half.stderr


@needs_gcc
@needs_libpython
def test_what_is_written_into_it_is_measured(tmp_path):
    assert run("new-kernel", "gemm", "--out", tmp_path).returncode == 0
    for file, line, body in (("gemm.cu", "  // Write here", GEMM_CPP), ("gemm_python.py", "    raise", "    t.d[...] = t.a @ t.b.T + t.bias\n")):
        lines = (tmp_path / file).read_text().splitlines(keepends=True)
        assert sum(one.startswith(line) for one in lines) == 1
        (tmp_path / file).write_text("".join(body if one.startswith(line) else one for one in lines))
    plugins = (*build(tmp_path, "gemm"), "--plugin", tmp_path / "gemm_python.py")
    for name in ("my_host", "my_python"):
        made = run("run", "gemm", *plugins, "--variant", name, "--problem", "m=7,n=5,k=9", "--dtype", "fp32", "--device", "host", env=PYTHON)
        assert any(f"{name} " in line and (" ok" in line or " throttled" in line) for line in made.stdout.splitlines()), made.stdout + made.stderr


def test_fields_and_tensors_are_named(tmp_path):
    assert run("new-kernel", "conv2d", "--out", tmp_path).returncode == 0
    listed = run("list", "ops").stdout.split("\nconv2d: ")[1].splitlines()[1:]
    lines = list(itertools.takewhile(lambda line: line.startswith("  "), listed))
    cpp, python = (tmp_path / "conv2d.cu").read_text(), (tmp_path / "conv2d_python.py").read_text()
    names = [re.match(r"  (\w+)", line)[1] for line in lines]
    assert {"stride", "upsample", "norm", "x", "w", "bias", "residual", "y"} <= set(names)
    for name, line in zip(names, lines):
        assert f" {name} = " in cpp and line in python, name


@pytest.mark.skipif(NVCC is None, reason="no nvcc")
@pytest.mark.parametrize("op", ["groupnorm", "conv2d"])
def test_cuda_is_built_by_its_line_and_loads(tmp_path, op):
    assert run("new-kernel", op, "--out", tmp_path).returncode == 0
    text = (tmp_path / f"{op}.cu").read_text()
    line = next(line for line in text.splitlines() if line.startswith("// nvcc")).removeprefix("// nvcc ")
    subprocess.run([NVCC, *line.replace("-arch=native", "-arch=sm_75").split()], cwd=tmp_path, check=True)
    listed = run("list", "variants", "--ops", op, "--plugin", tmp_path / f"{op}.so")
    assert listed.returncode == 0 and "my_cuda" in listed.stdout, listed.stderr


def test_files_of_others_stay(tmp_path):
    made = run("new-kernel", "groupnorm", "--out", tmp_path / "new")
    assert made.returncode == 0
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["groupnorm.cu", "groupnorm_python.py", "groupnorm_triton.py"]
    (tmp_path / "new" / "groupnorm.cu").write_text("mine\n")
    again = run("new-kernel", "groupnorm", "--out", tmp_path / "new")
    assert again.returncode == 2 and "is there already" in again.stderr
    assert (tmp_path / "new" / "groupnorm.cu").read_text() == "mine\n"
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "groupnorm.cu").symlink_to(tmp_path / "elsewhere")
    linked = run("new-kernel", "groupnorm", "--out", tmp_path / "links")
    assert linked.returncode == 2 and "is there already" in linked.stderr and not (tmp_path / "elsewhere").exists()
    for wrong, words in [(("gropnorm",), "did you mean 'groupnorm'"), (("network",), "is no op"), (("gemm", "--out", tmp_path / "new" / "groupnorm.cu"), "not a folder")]:  # fmt: skip
        refused = run("new-kernel", *wrong)
        assert refused.returncode == 2 and words in refused.stderr, refused.stderr
