"""`noisefloor ab --python`: on environments with scripted times, and on two versions of a small package."""

import os
import shlex
import signal
import subprocess
import sys
import time

import pytest

from tests.cli.program import PROGRAM, needs_program, read_table, run, stub_build
from tests.support.machine import executable, git

pytestmark = needs_program

BENCH = """
import tiny

def cases():
    return [{"n": 200}, {"n": 400, "text": "a"}]

def setup(problem):
    return {"x": list(range(problem.n))}

def launch_total(problem, t):
    return tiny.total(t.x)
"""
ONCE = "def total(x):\n    return {'sum': sum(v * v for v in x)}\n"
THRICE = "def total(x):\n    return {'sum': [sum(v * v for v in x) for _ in range(3)][2]}\n"


@pytest.fixture
def bench(tmp_path):
    (tmp_path / "bench.py").write_text(BENCH)
    return tmp_path / "bench.py"


@pytest.fixture
def environment(tmp_path):
    """A Python that has a package tiny of this text."""
    def environment(name, text):
        executable(tmp_path / name / "site/tiny.py", text)
        site = shlex.quote(str(tmp_path / name / "site"))
        executable(tmp_path / name / "bin/python3", f'#!/bin/sh\nPYTHONPATH={site} exec {shlex.quote(sys.executable)} "$@"\n')
        return tmp_path / name
    return environment


def ab(old, new, file, *more, **kwargs):
    out = file.with_name("ab.csv")
    result = run("ab", "--python", old, "--python", new, "--out", out, *more, "--", file, **kwargs)
    return result, {row["case"]: row for row in (read_table(out) if out.exists() else [])}


def test_a_function_that_does_more_is_slower(environment, bench, tmp_path):
    result, lines = ab(environment("old", ONCE), environment("new", THRICE), bench, "--markdown", tmp_path / "ab.md", "--filter", "n=400", "--resolve", "20")
    assert result.returncode == 1 and set(lines) == {"total/n=400,text=a"}, result.stderr
    row = lines["total/n=400,text=a"]
    assert row["verdict"] == "slower" and 0.2 < float(row["warm"]) < 0.5 and not row["cycles"], "a host's clock is unknown"
    assert "the same bits" in (tmp_path / "ab.md").read_text()


@pytest.mark.parametrize("new, more, verdict, words, code", [
    ("def total(x):\n    return {'sum': 1}\n", "", "wrong", "relative L2 error", 1),
    ("def total(x):\n    return {'sum': [1, 2]}\n", "", "wrong", "shape (2,) instead of shape (1,)", 1),
    ("def other(x):\n    pass\n", "", "wrong", "AttributeError", 1),
    (ONCE, "\ndef reference(problem, t):\n    return 1\n", "missing", "the old environment: output 0: relative L2 error", 2),
])
def test_what_does_not_give_the_same_is_told_from_what_is_slow(environment, bench, new, more, verdict, words, code):
    bench.write_text(BENCH + more)
    result, lines = ab(environment("old", ONCE), environment("new", new), bench)
    assert result.returncode == code, result.stderr
    assert all(row["verdict"] == verdict and words in row["reason"] for row in lines.values()) and len(lines) == 2, lines


def scripted(folder, kernels, distance=0.0, reference=False, **script):
    judged = {"errors": [{"max": distance, "l2": distance}]}
    answers = {"cases": {"cases": [{"variant": "norm", "problem": "n=1", "tolerance": 0.02}]}, "judge": judged, "ready": judged,
               "look": {"outputs": str(distance), "reference": reference, "kernels": kernels}}
    return stub_build(folder, "python3", answers=answers, **script)


def test_kernels_cycles_and_outputs(bench, tmp_path):
    old = scripted(tmp_path / "old", ["copy", "norm_v1"], mhz=2000.0)
    result, lines = ab(old, scripted(tmp_path / "new", ["copy", "norm_v2"], 0.001, us=10.5, mhz=1000.0), bench)
    assert result.returncode == 1 and lines["norm/n=1"]["verdict"] == "slower", result.stderr
    assert float(lines["norm/n=1"]["cycles"]) == pytest.approx(2000 / 1000 * 10 / 10.5, rel=1e-3), "the old one's over the new one's"
    table = next(line.split() for line in result.stdout.splitlines() if line.startswith("norm/"))
    assert table == ["norm/n=1", "1.00e-03", "from", "the", "old", "ones", "norm_v1", "norm_v2"]
    of_reference = [scripted(tmp_path / name, [], distance, True) for name, distance in (("a", 0.002), ("b", 0.003))]
    assert "3.00e-03 from the reference, was 2.00e-03" in ab(*of_reference, bench)[0].stdout


def test_what_cannot_be_compared(environment, bench, tmp_path):
    good = environment("good", ONCE)
    for new, more, words in ((environment("bare", "import none"), (), "the new environment"), (tmp_path / "none", (), "--python"),
                             (f"{good}@none", (), "'none'"), (good, ("--ops", "gemm"), "--ops"), (good, ("--filter", "zzz"), "--filter"),
                             (good, ("--python", good), "twice"), (scripted(tmp_path / "gpu", [], facts={"device": "a GPU"}), (), "a GPU")):
        result, lines = ab(good, new, bench, *more, cwd=tmp_path)
        assert result.returncode == 2 and words in result.stderr and not lines, result.stderr
    for file, words in (("x = 1", "no function launch"), ("import sys\nsys.exit('enough')", "enough (line 2)"),
                        (BENCH.replace('[{"n": 200}', '["n", {}'), "cases() must give"), (BENCH + "tolerance = 'much'", "tolerance is 'much'")):
        bench.write_text(file)
        result, lines = ab(good, good, bench)
        assert result.returncode == 2 and words in result.stderr and not lines and result.stderr.count("\n") == 1, result.stderr
    assert "no such file" in ab(good, good, tmp_path / "none.py")[0].stderr


def test_a_function_that_never_ends_costs_its_case_alone(environment, bench):
    bench.write_text(BENCH + "\ndef launch_never(problem, t):\n    while problem.n == 400 and tiny.slow:\n        pass\n    return 1\n")
    sides = environment("old", ONCE + "slow = False\n"), environment("new", ONCE + "slow = True\n")
    result, lines = ab(*sides, bench, "--resolve", "20", env={**os.environ, "NOISEFLOOR_PLUGIN_SECONDS": "2"})
    assert result.returncode == 1 and len(lines) == 4, result.stderr
    assert {case for case, row in lines.items() if row["verdict"] == "wrong"} == {"never/n=400,text=a"} and "2 s" in lines["never/n=400,text=a"]["reason"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_leaves_no_folder(environment, bench, tmp_path, number):
    bench.write_text(BENCH + "\nimport os\nopen(os.environ['TMPDIR'] + '/begun', 'w')\nwhile True:\n    pass\n")
    good, scratch = environment("good", ONCE), tmp_path / "scratch"
    scratch.mkdir()
    with subprocess.Popen([PROGRAM, "ab", "--python", good, "--python", good, "--", bench], env={**os.environ, "TMPDIR": str(scratch)}) as program:
        wait_for(lambda: (scratch / "begun").exists())
        assert any(scratch.glob("noisefloor-ab-*"))
        program.send_signal(number)
    wait_for(lambda: not any(scratch.glob("noisefloor-ab-*")))


def wait_for(holds):
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_two_revisions(bench, tmp_path):
    """Not what lies in the working tree, which cannot even be imported."""
    git(tmp_path, "init")
    for value in (1, 2):
        (tmp_path / "tiny.py").write_text(f"def total(x):\n    return 'version {value}'\n")
        git(tmp_path, "add", "tiny.py")
        git(tmp_path, "commit", "-m", "a version")
    (tmp_path / "tiny.py").write_text("not Python")
    result, lines = ab("@HEAD~1", "@HEAD", bench, cwd=tmp_path, env={**os.environ, "NOISEFLOOR_PYTHON": sys.executable})
    assert result.returncode == 1, result.stderr
    assert all("'version 2' instead of 'version 1'" in row["reason"] for row in lines.values()) and len(lines) == 2
    assert len(git(tmp_path, "worktree", "list").splitlines()) == 1
