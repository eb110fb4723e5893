"""What a wheel has: the files that the build installs as component `python`, imported outside of the tree."""

import re
import subprocess
import sys
from pathlib import Path

import built

ROOT = Path(__file__).resolve().parents[2]
CODE = "import sys; sys.path.insert(0, sys.argv[1]); import noisefloor; print(noisefloor.__file__, noisefloor.ops.gemm.__doc__.split()[0])"


def test_what_is_installed_is_enough(tmp_path):
    subprocess.run(["cmake", "--install", Path(built.FOLDER).parent, "--prefix", tmp_path, "--component", "python"], check=True, capture_output=True)
    assert {path.name for path in tmp_path.iterdir()} == {"noisefloor"}
    names = {path.name for path in (tmp_path / "noisefloor").iterdir()}
    assert {path.name for path in (ROOT / "bench/python/noisefloor").iterdir() if path.is_file()} | {"ops.pyi"} < names
    result = subprocess.run([sys.executable, "-I", "-c", CODE, tmp_path], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stdout == f"{tmp_path}/noisefloor/__init__.py gemm(a,\n"


def test_a_wheel_is_built_with_what_the_tests_are_built_with():
    pins = dict(re.findall(r'"([\w-]+)==([\d.]+)"', (ROOT / "pyproject.toml").read_text()))
    tested = dict(re.findall(r"^([\w-]+)==([\d.]+)", (ROOT / "scripts/requirements.txt").read_text(), re.M))
    assert pins["nanobind"] == tested["nanobind"]
