"""noisefloor.capture(): the files of what was captured, and the command that captures a script."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import built  # finds the module
import noisefloor
import pytest
import random_calls
from capturing import F, PROGRAM, block, listed, needs_program, needs_torch, program, torch
from noisefloor import _mapping, _signatures

from tests.cli.program import read_table


@needs_program
def test_problems_are_written_as_the_program_writes_them(tmp_path):
    kinds = {"integer": int, "real": float, "flag": lambda text: text == "1"}
    for op, data in _signatures.CATALOGUE.items():
        wanted = {}
        for values, _ in random_calls.samples(op, 3, 60):
            typed = {field["name"]: kinds.get(field["type"], str)(values[field["name"]]) for field in data["fields"]}
            wanted[_mapping.problem(op, "fp32", **typed).text] = values
        folder = tmp_path / op
        folder.mkdir()
        with open(folder / f"{op}.csv", "w", newline="") as stream:
            writer = csv.DictWriter(stream, ["network", *values, "count"], lineterminator="\n")
            writer.writeheader()
            writer.writerows({"network": "any", "count": 1} | values for values in wanted.values())
        assert {text for _, text in listed(folder)} == set(wanted), op


@needs_torch
@needs_program
def test_the_files_are_swept(tmp_path):
    folder, forward = tmp_path / "problems", block()[0]
    with torch.no_grad(), noisefloor.capture() as capture:
        forward(torch.ones(2, 4, 6, 5)), forward(torch.ones(2, 4, 6, 5))
        F.silu(torch.ones(2, 8, dtype=torch.half))
    assert capture.write(folder, "mine") == "fp32"
    wanted = {(group.what.op, group.what.text): f"mine:{group.count}" for group in capture.problems()}
    assert listed(folder) == wanted and wanted["gemm", "m=60,n=24,k=8"] == "mine:2"
    assert (folder / "elementwise.csv").read_text() == ("network,op,hw,channels,dtype,count\nmine,silu,60,8,,2\nmine,add,60,8,,2\nmine,silu,2,8,fp16,1\n")
    result = program("sweep", "--device", "host", "--problems", folder, "--networks", "mine", "--dtypes", "fp32", "--ops", "groupnorm", "--out",
                     tmp_path / "out", "--benchmark_min_time=0.001")  # fmt: skip
    assert result.returncode == 0, result.stderr
    rows = read_table(tmp_path / "out" / "sweep.csv")
    assert {(row["problem"], row["status"]) for row in rows if row["variant"] == "host"} == {("n=2,hw=30,channels=8,groups=2", "ok")}


@needs_torch
def test_other_files_are_left_alone(tmp_path):
    with noisefloor.capture() as capture:
        F.silu(torch.ones(2, 8))
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="is not empty; problem files go into a new folder"):
        capture.write(tmp_path)
    with pytest.raises(NotADirectoryError, match="notes.txt: is no folder"):
        capture.write(tmp_path / "notes.txt")
    with pytest.raises(ValueError, match="network 'a;b': a name is of letters"):
        capture.write(tmp_path / "new", "a;b")
    with noisefloor.capture() as nothing:
        torch.ones(2).tanh()
    with pytest.raises(ValueError, match="nothing that was captured is a problem"):
        nothing.write(tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"] and (tmp_path / "notes.txt").read_text() == "mine"


@needs_torch
def test_a_write_that_fails_leaves_no_files(tmp_path, monkeypatch):
    with noisefloor.capture() as capture:
        F.silu(torch.ones(2, 8)), F.linear(torch.ones(2, 8), torch.ones(4, 8))

    def full(writer, rows):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(csv.DictWriter, "writerows", full)
    with pytest.raises(OSError, match="No space left"):
        capture.write(tmp_path / "new")
    assert not list((tmp_path / "new").iterdir())


@pytest.mark.parametrize("words, says", [([], "name a script behind --"), (["--"], "name a script"), (["--", "none.py"], "none.py: no such script"),
                                         (["--", "python3", "-m"], "name a script"), (["--", __file__], "PyTorch is not here")])
def test_the_command_says_what_is_missing(words, says, tmp_path):
    code = "import runpy, sys; sys.modules['torch'] = None; runpy.run_module('noisefloor', run_name='__main__', alter_sys=True)"
    result = subprocess.run([sys.executable, "-c", code, "capture", "--out", "x", *words], cwd=tmp_path, capture_output=True, text=True,
                            env=os.environ | {"PYTHONPATH": built.FOLDER})
    assert result.returncode == 2 and says in result.stderr and not list(tmp_path.iterdir()), result


SCRIPT = """
import sys, torch
torch.nn.functional.silu(torch.ones(2, 8))
print(__name__, sys.argv[1:])
if "raise" in sys.argv: raise ValueError("of the script")
if "exit" in sys.argv: sys.exit(3)
"""


@needs_torch
@pytest.mark.parametrize("through, ending, code", [("python", "none", 0), *(pytest.param("program", *one, marks=needs_program)
                                                                             for one in (("raise", 1), ("exit", 3)))])  # fmt: skip
def test_a_script_runs_as_it_would(through, ending, code, tmp_path):
    (tmp_path / "pipe.py").write_text(SCRIPT)
    begin = [sys.executable, "-m", "noisefloor", "capture"] if through == "python" else [PROGRAM, "capture"]
    command = [*begin, "--out", "problems", "--", sys.executable, "pipe.py", "--out", ending]
    keywords = {"cwd": tmp_path, "capture_output": True, "text": True, "env": os.environ | {"PYTHONPATH": built.FOLDER}}
    result = subprocess.run(command, **keywords)
    assert (result.returncode, result.stdout) == (code, f"__main__ ['--out', '{ending}']\n"), result.stderr
    assert "mapped: 100.00 % of 1 calls" in result.stderr and ("ValueError: of the script" in result.stderr) == (ending == "raise")
    if code:  # what half a script called is not what it calls
        assert f"problems: not written, as the script ended with {code}" in result.stderr and "noisefloor sweep" not in result.stderr
        assert [path.name for path in tmp_path.iterdir()] == ["pipe.py"]
        return
    assert [path.name for path in (tmp_path / "problems").iterdir()] == ["elementwise.csv"]
    assert (tmp_path / "problems/elementwise.csv").read_text() == "network,op,hw,channels,count\npipe,silu,2,8,1\n"
    assert "noisefloor sweep --problems problems --networks pipe --dtypes fp32" in result.stderr
    again = subprocess.run(command, **keywords)
    assert again.returncode == 2 and again.stdout == "" and "problems: is not empty" in again.stderr
    beneath = subprocess.run([*begin, "--out", "pipe.py/problems", "--", sys.executable, "pipe.py"], **keywords)
    assert beneath.returncode == 2 and beneath.stdout == "" and "pipe.py/problems: cannot be written: Not a directory" in beneath.stderr


@needs_program
@pytest.mark.parametrize("words, interpreter", [(["python_pipe.py"], "python3"), (["./python_pipe.py", "x"], "python3"),
                                                (["python", "python_pipe.py"], "python"), (["bin/python3.12", "python_pipe.py"], "bin/python3.12")])
def test_a_script_whose_name_begins_with_python_is_none(words, interpreter, tmp_path):
    for name in ("bin/python", "bin/python3", "bin/python3.12", "python_pipe.py"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text('#!/bin/sh\necho "$0" "$@"\n')
        file.chmod(0o755)
    result = program("capture", "--", *words, cwd=tmp_path, env=os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"})
    ran, said = result.stdout.split(" ", 1)
    assert Path(ran).name == Path(interpreter).name and said.split() == ["-m", "noisefloor", "capture", "--", *words[interpreter == words[0] :]]
