"""noisefloor new-kernel: what it writes is a plugin that works as it stands."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import ROOT, needs_libpython, needs_program, rows, run

pytestmark = needs_program
OPS = sorted(path.stem for path in (ROOT / "tests/problems").glob("*.csv"))
TEXTS = ROOT / "bench/plugin/new_kernel"
HAS = {"numpy": OPS, "torch": [op for op in OPS if f"def {op}(" in (TEXTS / "formulas_torch.py").read_text()],
       "cu": [op for op in OPS if any(f"struct {op} :" in file.read_text() for file in (TEXTS / "formulas").glob("*.cu"))]}
NVCC = shutil.which("nvcc") or next((str(path) for path in Path("/usr/local").glob("cuda*/bin/nvcc")), None)


@needs_libpython
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_python_of_every_op_is_right(tmp_path, kind):
    pytest.importorskip(kind)
    plugins = []
    for op in OPS:
        made = run("new-kernel", op, "--out", tmp_path / "mine")
        assert made.returncode == 0 and (f"{op}_{kind}.py" in made.stdout) == (op in HAS[kind]), made.stderr
        plugins += ["--plugin", tmp_path / "mine" / f"{op}_{kind}.py"] if op in HAS[kind] else []
    result = run("sweep", "--device", "host", "--problems", ROOT / "tests/problems", "--out", tmp_path / "run", "--networks", "tiny", "--dtypes", "fp32",
                 "--variants", f"my_{kind}", *plugins, env={**os.environ, "NOISEFLOOR_PYTHON": sys.executable})  # fmt: skip
    assert result.returncode == 0, result.stderr
    table = rows(tmp_path / "run")
    assert {row["op"] for row in table if row["status"] in ("ok", "throttled")} == set(HAS[kind])
    assert {row["status"] for row in table} <= {"ok", "throttled", "unsupported_problem"}


@pytest.mark.skipif(not shutil.which("g++"), reason="no g++")
def test_the_kernel_of_every_op_is_right_without_a_gpu(tmp_path):
    """What a thread of a GPU does there; in bf16, beside which some tensors are fp32."""
    plugins, ops = [], HAS["cu"]  # not groupnorm, whose example is a block's
    for op in ops:
        assert run("new-kernel", op, "--out", tmp_path).returncode == 0
        line = next(line for line in (tmp_path / f"{op}.cu").read_text().splitlines() if line.startswith("// g++"))
        subprocess.run([*line.removeprefix("// ").replace("-O2", "-O1").split(), "-Wall", "-Wextra", "-Werror"], cwd=tmp_path, check=True)
        plugins += ["--plugin", tmp_path / f"{op}.so"]
    result = run("sweep", "--device", "host", "--problems", ROOT / "tests/problems", "--out", tmp_path / "run", "--networks", "tiny", "--dtypes", "bf16",
                 "--variants", "my_host", *plugins)  # fmt: skip
    assert result.returncode == 0, result.stderr
    table = rows(tmp_path / "run")
    assert {row["op"] for row in table if row["status"] in ("ok", "throttled")} == set(ops)
    assert {row["status"] for row in table} <= {"ok", "throttled", "unsupported_problem"}
    half = run("run", "gemm", "--plugin", tmp_path / "gemm.so", "--variant", "my_host", "--problem", "m=4,n=4,k=4", "--dtype", "fp16", "--device", "host")
    assert half.returncode == 2 and "needs nvcc for fp16" in half.stdout, half.stdout + half.stderr


@pytest.mark.skipif(NVCC is None, reason="no nvcc")
@pytest.mark.parametrize("op", ["groupnorm", "conv2d"])
def test_cuda_is_built_by_its_line_and_loads(tmp_path, op):
    assert run("new-kernel", op, "--out", tmp_path).returncode == 0
    text = (tmp_path / f"{op}.cu").read_text()
    line = next(line for line in text.splitlines() if line.startswith("// nvcc")).removeprefix("// nvcc ")
    subprocess.run([NVCC, *line.replace("-arch=native", "-arch=sm_75").split()], cwd=tmp_path, check=True)
    listed = run("list", "variants", "--ops", op, "--plugin", tmp_path / f"{op}.so")
    assert listed.returncode == 0 and "my_cuda" in listed.stdout, listed.stderr


def test_a_file_has_what_its_op_calls_and_nothing_else(tmp_path):
    assert run("new-kernel", "temporal_attention", "--out", tmp_path).returncode == 0
    files = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert "def temporal_attention(" in files["temporal_attention_torch.py"], "which calls scaled_dot_product_attention"
    for text in files.values():
        assert "def attention(" not in text and "struct attention " not in text
    called = ("new-kernel", "timestep_embedding", "--out", tmp_path)
    assert run(*called).returncode == 0 and "float silu(float" in (tmp_path / "timestep_embedding.cu").read_text(), "which it calls"


def test_files_of_others_stay(tmp_path):
    made = run("new-kernel", "groupnorm", "--out", tmp_path / "new")
    assert made.returncode == 0
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["groupnorm.cu", "groupnorm_numpy.py", "groupnorm_torch.py",
                                                                        "groupnorm_triton.py"]  # fmt: skip
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
