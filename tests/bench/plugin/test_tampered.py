"""What tests/gpu/test_plugins_on_a_gpu.py tampers with, as far as a host goes: Triton's interpreter runs its kernels."""

import importlib.util
import os
import sys

import pytest

from tests.cli.program import needs_libpython, needs_program, rows, run, sweep
from tests.gpu.plugins import tampered


@pytest.fixture
def written(tmp_path):
    assert run("new-kernel", "groupnorm", "--out", tmp_path).returncode == 0
    return tmp_path


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
