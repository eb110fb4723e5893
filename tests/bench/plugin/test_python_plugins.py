"""Kernels of a user's as rows, from Python files: right ones, and the ways to be wrong that a library has not (test_plugins.py)."""

import os
import re
import sys

import pytest

from tests.cli.program import ROOT, needs_libpython, needs_program, rows, run, sweep

pytest.importorskip("numpy")
pytestmark = [needs_program, needs_libpython]
HERE = {**os.environ, "NOISEFLOOR_PYTHON": sys.executable}

RIGHT = """
import numpy as np

op = "gemm"


def product(problem, t):
    return problem.scale * t.a @ t.b.T + (t.bias if problem.bias else 0)
"""
FILE = RIGHT + """
import os, sys

def can_run(problem):
    assert problem.fields["m"] == problem.m and isinstance(problem.scale, float) and problem.act == "none" and problem.op == "gemm"
    return problem.dtype == "fp32" or "needs fp32"

def launch(problem, t):
    print("a line on standard output, which belongs to the answers")
    assert list(t) == ["a", "b", "bias", "d"] and t.get("residual") is None and t.stream is None
    t.d[...] = product(problem, t)

def setup(problem):
    return sys.modules.setdefault("set_up", []).append(problem.text) or len(sys.modules["set_up"])

def launch_returned(problem, t):
    assert problem.state == len(sys.modules["set_up"]) and sys.modules["set_up"][-1] == problem.text, "once a problem and row"
    return product(problem, t)

def launch_changes_an_input(problem, t):
    t.a[0, 0] += 1

def launch_wrong_shape(problem, t):
    return product(problem, t)[:1]

def launch_two(problem, t):
    return product(problem, t), product(problem, t)

def launch_raises(problem, t):
    raise KeyError("no luck today")

def launch_exits(problem, t):
    sys.exit("good-bye")

def launch_leaves(problem, t):
    print("really good-bye", file=sys.stderr, flush=True)
    os._exit(0)
"""
WRONG = {
    "changes_an_input": ("cuda_error", "ValueError: assignment destination is read-only (mine.PY, line "),
    "wrong_shape": ("cuda_error", "ValueError: it returned a tensor of shape (1, 16), the output has (8, 16)"),
    "two": ("cuda_error", "ValueError: it returned 2 tensors, the op has 1 outputs"),
    "raises": ("cuda_error", "KeyError: 'no luck today' (mine.PY, line "),
    "exits": ("cuda_error", "SystemExit: good-bye (mine.PY, line "),
    "leaves": ("cuda_error", "the process of mine.PY ended with exit code 0: really good-bye"),
}


def test_python_functions_are_rows(one, tmp_path):
    file = tmp_path / "mine.PY"
    file.write_text(FILE)
    names = ["mine", "returned", *WRONG]
    result = sweep(one, tmp_path / "run", "--dtypes", "fp32", "--variants", ",".join(["host", *names]), "--plugin", file, env=HERE)
    assert result.returncode == 1, result.stderr
    table = {row["variant"]: row for row in rows(tmp_path / "run")}
    assert set(table) == {"host", *names}
    for name in ("mine", "returned"):
        assert table[name]["status"] in ("ok", "throttled") and table[name]["plugin"] == "mine.PY", table[name]  # throttled: others have the cores
        assert float(table[name]["max_rel_error"]) <= float(table[name]["tolerance"])
    for name, (status, reason) in WRONG.items():
        row = table[name]
        assert row["status"] == status and reason in row["reason"], (name, row["status"], row["reason"])
        assert not row["time_cold_us"] and not row["time_warm_us"], name

    other = run("run", "gemm", "--problem", "m=8,n=16,k=24", "--dtype", "fp16", "--device", "host", "--plugin", file, "--variant", "mine", env=HERE)
    assert other.returncode == 2 and "needs fp32" in other.stdout, other.stdout + other.stderr


def test_a_file_that_gets_no_row_is_named_with_the_reason(one, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text('op, arch, kind = "gemm", "sm_80", "tiled"\ndef launch(p, t): pass\ndef launch_other(p, t): pass\n')
    (tmp_path / "here.py").write_text('op, arch, kind = "gemm", "host", "host"\ndef launch(p, t): pass\n')
    said = "--plugin: there is no row of"
    asked = ("--dtypes", "fp32", "--plugin", file, "--plugin", tmp_path / "here.py", "--variants")
    result = sweep(one, tmp_path / "run", "--dtypes", "fp32", "--plugin", file, env=HERE)
    assert result.returncode == 0 and f"{said} mine.py: a host does not run mine of gemm, other of gemm\n" in result.stderr, result.stderr
    result = sweep(one, tmp_path / "other", *asked, "host,other", env=HERE)
    assert f"{said} here.py: this selection leaves out here of gemm\n" in result.stderr and f"{said} mine.py" not in result.stderr, result.stderr
    assert {row["variant"]: row["status"] for row in rows(tmp_path / "other")}["other"] == "no_device"


def test_a_file_that_changes_is_not_loaded_again(one, tmp_path):
    file = tmp_path / "mine.py"
    change = "def launch(problem, t):\n    open(__file__, 'a').write('# another')\n    os._exit(0)\n"
    file.write_text("import os" + RIGHT + change + "\ndef launch_later(problem, t):\n    return product(problem, t)\n")
    result = sweep(one, tmp_path / "run", "--dtypes", "fp32", "--variants", "mine,later", "--plugin", file, env=HERE)
    assert result.returncode == 1, result.stderr
    later = {row["variant"]: row for row in rows(tmp_path / "run")}["later"]
    assert later["status"] == "cuda_error" and later["reason"].endswith("mine.py cannot be started: the file was changed since this command began"), later


def test_the_example_of_the_page_is_a_right_plugin(tmp_path):
    file = tmp_path / "example.py"
    file.write_text(re.search(r"<!-- example -->\n```python\n(.*?)```", (ROOT / "docs/plugins.md").read_text(), re.S)[1])
    problem = ("--problem", "op=relu,n=2,hw=9,channels=7", "--dtype", "fp32", "--device", "host", "--plugin", file)
    for variant in ("example", "other"):
        result = run("run", "elementwise", *problem, "--variant", variant, env=HERE)
        assert f"{variant}: max error 0 " in result.stdout, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def launch(p, t: pass\n", "SyntaxError"),
        ("def launch(p, t): pass\n", "it has no 'op'"),
        ('op = "gemm"\n', "it has no function launch(problem, tensors)"),
        ('op = "gemm"\nlaunch = 7\n', "'launch' is 7, not a function"),
        ('op = 7\ndef launch(p, t): pass\n', "'op' is 7, not a text"),
        ('op = "gemm"\nname = "host"\ndef launch(p, t): pass\n', "gemm already has a variant 'host'"),
        ("import no_such_module\n", "No module named 'no_such_module'"),
        ("raise SystemExit(0)\n", "SystemExit"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(one, tmp_path, text, words):
    file = tmp_path / "mine.py"
    file.write_text(text)
    result = sweep(one, tmp_path / "run", "--plugin", file, env=HERE)
    assert result.returncode == 2 and "mine.py" in result.stderr and words in result.stderr, result.stderr
    assert not (tmp_path / "run").exists()


def test_a_python_that_cannot_be_used_is_named(one, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(RIGHT + "def launch(problem, t): return product(problem, t)\n")
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho /usr/bin/python3\necho libpython0.7.so.1.0\n")
    fake.chmod(0o755)
    for python, words in [(tmp_path / "none", "cannot be run: exit code 127"), (fake, "no shared library libpython0.7.so.1.0")]:
        result = sweep(one, tmp_path / "run", "--plugin", file, env={**HERE, "NOISEFLOOR_PYTHON": str(python)})
        assert result.returncode == 2 and words in result.stderr and "NOISEFLOOR_PYTHON names another" in result.stderr, result.stderr
