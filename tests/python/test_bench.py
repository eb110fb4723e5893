"""noisefloor.bench: a function as a row, from Python."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import built
import pytest

import noisefloor
from noisefloor import _bench

from tests.cli.program import needs_libpython

pytestmark = [needs_libpython, pytest.mark.skipif(not Path(built.FOLDER, "..", "bin", "noisefloor").is_file(), reason="this build has no program")]
PROBLEM = "m=4,n=8,k=8"
FILE = """
op = "gemm"

def launch(problem, t):
    return t.a @ t.b.T + t.bias
"""


def product(problem, t):
    t.d[...] = t.a @ t.b.T + t.bias


def wrong(problem, t):
    t.d[...] = 0


def only_large(problem):
    return problem.m >= 1000 or "needs m >= 1000"


def rows(plugin, **more):
    found = noisefloor.bench("gemm", plugin, **{"problem": PROBLEM, "dtypes": "fp32", "device": "host", "variants": "host", "quiet": True, **more})
    return {row["variant"]: row for row in found}


def test_a_function_is_a_row(capsys, tmp_path):
    table = rows(product, quiet=False, out=tmp_path / "run")
    assert list(table) == ["host", "mine"] and table["mine"]["status"] in ("ok", "throttled"), table["mine"]
    assert table["mine"]["problem"] == PROBLEM and "mine" in capsys.readouterr().out
    assert (tmp_path / "run" / "sweep.csv").is_file()
    with pytest.raises(RuntimeError, match="changed since; give another --out, or"):
        rows(product, out=tmp_path / "run")
    assert list(rows(product, out=tmp_path / "run", fresh=True)) == ["host", "mine"]
    assert rows(wrong)["mine"]["status"] == "incorrect"
    refused = rows(product, can_run=only_large, variants="", name="large")
    assert list(refused) == ["large"] and refused["large"]["reason"] == "needs m >= 1000"


def test_a_file_is_a_row(tmp_path):
    """Of its own name, and each of its functions."""
    file = tmp_path / "products.py"
    file.write_text(FILE + FILE.replace("launch", "launch_other"))
    table = rows(file)
    assert list(table) == ["host", "products", "other"] and all(row["status"] in ("ok", "throttled") for row in table.values())
    assert list(rows(file, variants="")) == ["products", "other"]
    with pytest.raises(ValueError, match="products.py has no row of groupnorm"):
        noisefloor.bench("groupnorm", str(file), problems="adm64-b1", variants="", device="host")


def test_a_file_that_gets_no_row_is_warned_of(tmp_path):
    file = tmp_path / "products.py"
    file.write_text('arch, kind = "sm_80", "tiled"\n' + FILE)
    with pytest.warns(UserWarning, match="there is no row of products.py: a host does not run products of gemm"):
        assert "products" not in rows(file, variants=None)


def test_a_closure_needs_cloudpickle():
    factor = 1.0

    def scaled(problem, t):
        t.d[...] = factor * (t.a @ t.b.T) + t.bias

    if importlib.util.find_spec("cloudpickle"):
        assert rows(scaled)["mine"]["status"] in ("ok", "throttled")
    code = "import sys; sys.modules['cloudpickle'] = None\nimport noisefloor\nnoisefloor.bench('gemm', lambda p, t: None, problem='m=4,n=8,k=8')"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": built.FOLDER})
    assert "needs the package cloudpickle" in result.stderr


def test_what_makes_no_sense_is_named():
    with pytest.raises(ValueError, match="give problems="):
        noisefloor.bench("gemm", product)
    with pytest.raises(TypeError, match="a function or a file's name, not a int"):
        noisefloor.bench("gemm", 7, problem=PROBLEM)
    with pytest.raises(ValueError, match="noisefloor has no op 'gem'"):
        noisefloor.bench("gem", product, problem=PROBLEM, device="host")
    with pytest.raises(RuntimeError, match="no such file"):
        noisefloor.bench("gemm", "none.so", problem=PROBLEM, device="host")
    with pytest.raises(RuntimeError, match="no such file"):
        noisefloor.bench("gemm", "none.so", problem=PROBLEM, device="host", variants="host")
    with pytest.raises(ValueError, match="field=value, got 'm'"):
        noisefloor.bench("gemm", product, problem="m")
    with pytest.raises(ValueError, match="^problem: field 'k' is given twice$"):
        noisefloor.bench("gemm", product, problem="m=4,n=8,k=8,k=4")
    for argument, value in (("op", 7), ("problems", ["sd15-b2"]), ("problem", {"m": 4}), ("dtypes", ["fp32"]), ("name", 7), ("variants", ["host"])):
        with pytest.raises(TypeError, match=f"^{argument} must be text, not a {type(value).__name__}$"):
            noisefloor.bench(**{"op": "gemm", "plugin": product, argument: value})
    assert Path(_bench.program()).is_file()
