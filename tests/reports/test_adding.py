"""Follows the worked examples of docs/adding.md: their files lie over the tree's, what they touch is compiled as the build compiles it, and the
program with them is linked and asked. (test_columns.py follows that of a column.)"""

import csv
import os
import re
import runpy
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("NOISEFLOOR_BINARY", ""))
BUILD = PROGRAM.parent.parent
EXAMPLE = re.compile(r"<!-- example: (\w+), (new|in) ([^\s,]+)(?:, (after|before): (.*?))? -->\n```\w*\n(.*?)```", re.S)

pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="NOISEFLOOR_BINARY names no program")


def lay_over(folder, kinds):
    """Writes the examples' files below `folder`; gives them by path."""
    files = {}
    for kind, how, path, place, anchor, text in EXAMPLE.findall((ROOT / "docs" / "adding.md").read_text()):
        if kind not in kinds:
            continue
        if how == "new":
            assert not (ROOT / path).exists(), f"{path} is there: choose another example"
            files[path] = text
            continue
        lines = (files.get(path) or (ROOT / path).read_text()).splitlines(keepends=True)
        at = [number for number, line in enumerate(lines) if line.startswith(anchor)]
        assert len(at) == 1, f"{path}: {len(at)} lines begin with '{anchor}'"
        lines.insert(at[0] + (place == "after"), text)
        files[path] = "".join(lines)
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return files


def command_of(target):
    said = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", target], capture_output=True, text=True, timeout=60)
    assert said.returncode == 0, said.stdout + said.stderr
    return said.stdout.strip().split("\n")[-1]


def compile_as(like, source, folder):
    """Compiles `source` with the flags of the object of `like` (a path in the tree), headers of `folder` first."""
    room, inside = like.split("/", 1)
    objects = [line.split(": ")[0] for line in targets() if re.fullmatch(rf"{room}/CMakeFiles/\w+\.dir/{re.escape(inside)}\.o: .*", line)]
    assert len(objects) == 1, f"{like}: objects {objects}"
    made = folder / ("_".join(source.parts[-3:]) + ".o")
    command = command_of(objects[0])
    flags = re.sub(r" -MD -MT \S+ -MF \S+", "", command[: command.index(" -o ")])
    shell(f"{flags.replace(' -I', f' -I{folder} -I', 1)} -o {made} -c {source}")
    return made


def targets():
    return subprocess.run(["ninja", "-C", BUILD, "-t", "targets", "all"], capture_output=True, text=True, timeout=60).stdout.split("\n")


def shell(command):
    result = subprocess.run(command, shell=True, cwd=BUILD, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
    return result.stdout


def compile_all(sources, folder):
    with ThreadPoolExecutor(2) as pool:
        return " ".join(str(made) for made in pool.map(lambda pair: compile_as(*pair, folder), sources))


def test_a_variant_and_an_op_are_measured(tmp_path):
    files = lay_over(tmp_path, ("variant", "op"))
    sources = [(path if (ROOT / path).exists() else "kernels/catalogue.cpp", tmp_path / path) for path in files if path.endswith(".cpp")]
    objects = compile_all(sources, tmp_path)
    program = tmp_path / "noisefloor"
    link = command_of("bin/noisefloor")
    shell(re.sub(r" (\S*main\.cpp\.o) -o bin/\S+", rf" \1 {objects} -o {program}", link).split(" && ", 1)[1].rsplit(" && ", 1)[0])

    def rows(*arguments):
        result = subprocess.run([program, "run", *arguments, "--device", "host"], capture_output=True, text=True, timeout=120)
        # On a loaded machine a right row has no time.
        assert result.returncode == 0 or "throttled (threads waited" in result.stdout, result.stdout + result.stderr
        return result.stdout

    assert re.search(r"host_plain .*\b(ok|throttled)\b", rows("layernorm", "--problem", "rows=33,channels=40,images=3,fusion=scale_shift,residual=1",
                                                  "--variant", "host_plain"))
    with open(tmp_path / "tests/problems/rmsnorm.csv", newline="") as file:
        for line in csv.DictReader(file):
            problem = ",".join(f"{key}={value}" for key, value in line.items() if key not in ("network", "count"))
            for dtype in ("bf16", "fp32"):
                assert re.search(r"\bhost .*\b(ok|throttled)\b", rows("rmsnorm", "--problem", problem, "--dtype", dtype))
    listed = subprocess.run([program, "list", "variants", "--filter", "^rmsnorm/"], capture_output=True, text=True, timeout=60).stdout
    assert "ptx_sm90a" in listed and "an example of docs/adding.md" in listed
    rmsnorm = runpy.run_path(tmp_path / "bench/plugin/new_kernel/formulas.py")["rmsnorm"]
    assert np.allclose(rmsnorm({"eps": "0"}, {"x": np.array([[3.0, -3.0]]), "gamma": np.array([1.0, 2.0])}), [[1, -2]])
