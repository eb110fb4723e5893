"""What tests/gpu/test_plugins_on_a_gpu.py tampers with, as far as a host goes: CUDA compiles, and Triton's interpreter runs its kernels."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import ROOT, needs_libpython, needs_program, rows, run, sweep
from tests.gpu.plugins import tampered

NVCC = shutil.which("nvcc") or next((str(path) for path in Path("/usr/local").glob("cuda*/bin/nvcc")), None)


@pytest.fixture
def written(tmp_path):
    assert run("new-kernel", "groupnorm", "--out", tmp_path).returncode == 0
    return tmp_path


@needs_program
@pytest.mark.skipif(NVCC is None, reason="no nvcc")
def test_tampered_cuda_compiles(written):
    (written / "mine.cu").write_text(tampered.cuda((written / "groupnorm.cu").read_text()))
    subprocess.run([NVCC, "-arch=sm_75", "-shared", "-Xcompiler", "-fPIC", "-I", ROOT / "bench/plugin/include", written / "mine.cu", "-o", written / "mine.so"],
                   check=True)  # fmt: skip
    listed = run("list", "variants", "--ops", "groupnorm", "--plugin", written / "mine.so")
    assert all(name in listed.stdout for name in tampered.REASONS), listed.stderr


@needs_program
@needs_libpython
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_tampered_triton_is_incorrect_on_a_host(written):
    names = [name for name in tampered.REASONS if name != "other_stream"]
    text = tampered.triton((written / "groupnorm_triton.py").read_text(), names)
    for old, new in (('"tiled", "sm_80"', '"host", "host"'), ("y, hw, channels,", "y, hw: tl.constexpr, channels,")):  # it has no loops of tensors
        assert text.count(old) > 0
        text = text.replace(old, new)
    (written / "mine.py").write_text(text)
    (written / "problems").mkdir()
    (written / "problems" / "groupnorm.csv").write_text(tampered.PROBLEM)
    result = sweep(written / "problems", written / "run", "--dtypes", "fp32", "--variants", ",".join(["my_triton", *names]), "--plugin", written / "mine.py",
                   env={**os.environ, "NOISEFLOOR_PYTHON": sys.executable, "TRITON_INTERPRET": "1"})  # fmt: skip
    assert result.returncode == 1, result.stderr
    table = {row["variant"]: row for row in rows(written / "run")}
    assert table["my_triton"]["status"] in ("ok", "throttled")
    if table["stale"]["status"] == "throttled":  # where others have the cores a row ends before its second phase
        names.remove("stale")
    tampered.hold_to_reasons(table.values(), names)
