"""scripts/record part and status: parts that are cut short and carried to another machine; and its list against the problem files."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.locks import held
from tests.support.record_machine import ENVIRONMENT, ROOT, Machine

PROGRAM = os.environ.get("NOISEFLOOR_BINARY", "")
pytestmark = pytest.mark.skipif(not Path(PROGRAM).is_file(), reason="NOISEFLOOR_BINARY names no program")


def test_a_budget_leaves_the_rest_to_the_next_session(tmp_path):
    machine = Machine(tmp_path / "machine")
    result = machine.run("part", "--minutes", "0.0001", "--only", "core-gemm")
    assert result.returncode == 0 and "minutes are over" in result.stderr
    assert "core-gemm/2" not in result.stderr, "no part is begun after its time"
    assert machine.run("part", "--only", "core-gemm").returncode == 0
    status = machine.run("status", "--only", "core-gemm,core-silu").stdout.splitlines()
    assert status[1].split()[:3] == ["core-gemm", "2", "2"] and status[2].split()[:3] == ["core-silu", "1", "0"] and status[3] == "about 5 minutes left"


def test_caches_travel_with_the_parts(tmp_path):
    machine = Machine(tmp_path / "machine")
    of_nobody = {name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"}
    assert machine.run("part", "--only", "core-silu", env=of_nobody).returncode == 0
    assert list((machine.folder / "parts/.cache/noisefloor").iterdir())
    assert machine.run("status", "--only", "core-silu").returncode == 0, "a folder of parts, for all that"
    machine.run("part", "--only", "core-gemm", parts=("others",), env=of_nobody | {"XDG_CACHE_HOME": str(tmp_path / "mine")})
    assert not (machine.folder / "others/.cache").exists() and list((tmp_path / "mine/noisefloor").iterdir())


def test_a_bundle_measures_parts(tmp_path):
    machine, bundle = Machine(tmp_path / "machine"), tmp_path / "bundle"
    (bundle / "bin").mkdir(parents=True)
    (bundle / "bin/noisefloor").symlink_to(Path(PROGRAM).resolve())
    shutil.copytree(ROOT / "scripts", bundle / "scripts")
    shutil.copy(ROOT / "scripts/bundle_run.sh", bundle / "run.sh")
    environment = {name: value for name, value in os.environ.items() if name != "NOISEFLOOR_BINARY"}
    command = [bundle / "run.sh", "record", *machine.command("part", "--only", "core-gemm")[2:]]
    result = subprocess.run(command, cwd=machine.folder, capture_output=True, text=True, timeout=300, env=environment)
    assert result.returncode == 0 and len(machine.rows("core-gemm/01-of-02")) == 3, result.stderr
    command[2] = "finish"
    result = subprocess.run(command, cwd=machine.folder, capture_output=True, text=True, timeout=300, env=environment)
    assert result.returncode == 2 and "finish needs a checkout" in result.stderr


def test_a_part_that_is_being_measured_is_left_alone(tmp_path):
    machine = Machine(tmp_path / "machine")
    folder = machine.folder / "parts/core-gemm/01-of-02"
    folder.mkdir(parents=True)
    with held(folder / ".session"):
        assert machine.run("part", "--only", "core-gemm").returncode == 0
    assert not (folder / "sweep.csv").exists() and len(machine.rows("core-gemm/02-of-02")) == 2


def test_a_process_for_each_gpu(tmp_path):
    machine = Machine(tmp_path / "machine")
    result = machine.run("part", "--gpus", "7,9", "--only", "core-gemm,core-silu")
    assert result.returncode == 0, result.stderr
    told = [line for line in result.stderr.splitlines() if " on GPU " in line]
    assert len(told) == 3 and {line.split()[-1] for line in told} == {"7", "9"}, "each part once, by either"
    assert [line.split()[:3] for line in machine.run("status", "--only", "core").stdout.splitlines()[1:3]] == [["core-gemm", "2", "2"], ["core-silu", "1", "1"]]


def test_a_process_that_fails_on_one_gpu_is_told(tmp_path):
    machine = Machine(tmp_path / "machine")
    assert machine.run("part", "--only", "core-gemm/1").returncode == 0
    (machine.folder / "parts/core-gemm/01-of-02/env.json").write_text("[]")
    result = machine.run("part", "--gpus=1,2", "--only", "core-gemm")
    assert result.returncode == 2 and result.stderr.count("is not a JSON object") == 2


@pytest.mark.parametrize("arguments, says", [
    (["part", "--gpus", "0,,1"], "--gpus '0,,1': part takes a list of GPUs"),
    (["part", "--take-turns"], "--take-turns was removed"),
    (["part", "--gpus", "0,1,0"], "--gpus '0,1,0': part takes a list of GPUs, each once"),
    (["status", "--gpus", "0"], "--gpus '0': part takes a list of GPUs"),
    (["part", "--only", "core-conv"], "--only: unknown 'core-conv'; the steps are core-gemm, core-silu, rest-silu"),
    (["part", "--minutes", "0"], "--minutes is 0: the range is above 0, to 100,000"),
    (["part", "--minutes", "nan"], "--minutes is nan: the range is above 0, to 100,000"),
    (["part", "--minutes", "1e6"], "--minutes is 1e+06: the range is above 0, to 100,000"),
    (["finish", "--out", "made"], "no part is done"),
])
def test_wrong_arguments_are_named(arguments, says, tmp_path):
    result = Machine(tmp_path / "machine").run(*arguments)
    assert result.returncode == 2 and says in result.stderr


def test_status_of_a_mistyped_folder(tmp_path):
    machine = Machine(tmp_path / "machine")
    for folder in ("prats", "list", "problems"):
        result = machine.run("status", parts=(folder,))
        assert result.returncode == 2 and f"--parts: {folder} is not a folder of parts" in result.stderr and not result.stdout
    (machine.folder / "parts").mkdir()
    assert machine.run("status").returncode == 0, "one in which they are to come"


def test_what_cannot_be_read_or_written_is_named(tmp_path):
    machine = Machine(tmp_path / "machine")
    state = machine.folder / "parts/core-gemm/01-of-02/part.json"
    state.parent.mkdir(parents=True)
    state.write_text("{")
    result = machine.run("status")
    assert result.returncode == 2 and "01-of-02/part.json: cannot be read" in result.stderr and "Traceback" not in result.stderr
    result = machine.run("part", parts=("list",))
    assert result.returncode == 2 and "Not a directory" in result.stderr and "Traceback" not in result.stderr


def test_a_session_that_is_told_to_end_ends_its_sweep(tmp_path):
    machine = Machine(tmp_path / "machine")
    with subprocess.Popen(machine.command("part", "--only", "rest"), cwd=machine.folder, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT) as session:
        while "/20]" not in session.stderr.readline():
            pass
        session.terminate()
        rest = session.stderr.read()  # to its end: nobody holds it any more
    assert session.returncode == 2 and "what it measured is kept" in rest
    assert machine.run("part", "--only", "rest-silu/1").returncode == 0 and len(machine.rows("rest-silu/01-of-03")) == 20


def test_a_list_that_is_none(tmp_path):
    machine = Machine(tmp_path / "machine")
    (machine.folder / "list").write_text("core-gemm --ops gemm\n")
    result = machine.run("status")
    assert result.returncode == 2 and "list:1: needs a step's name, a number of parts from 1 to 9999, and arguments" in result.stderr


def listed(*arguments):
    result = subprocess.run([PROGRAM, "sweep", "--device", "host", *arguments, "--benchmark_list_tests"], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def problems(cases):
    return {case.rsplit("/", 1)[0] for case in cases}


def test_the_list_has_every_problem_once():
    lines = [line.split() for line in (ROOT / "scripts/record.txt").read_text().splitlines() if line and not line.startswith("#")]
    ops = {json.loads(line)["op"] for line in subprocess.run([PROGRAM, "list", "ops", "--format", "json"], capture_output=True, text=True).stdout.splitlines()}
    others = ops - {op for words in lines if "--ops" in words for op in words[words.index("--ops") + 1].split(",")}
    assert {"conv3d_temporal", "conv_transpose2d", "temporal_attention"} <= others
    lines = [[word.replace("others", ",".join(sorted(others))) if "--ops" in words[:-1] and words[words.index("--ops") + 1] == word else word
              for word in words] for words in lines]
    assert lines[0][0] == "every"
    every, steps = lines[0][2:], {line[0]: line[2:] for line in lines[1:]}
    assert len(steps) == len(lines) - 1
    rows = subprocess.run([PROGRAM, "list", "variants", "--format", "json"], capture_output=True, text=True).stdout.splitlines()
    kinds = {json.loads(row)["kind"] for row in rows}
    assert set(every[every.index("--kinds") + 1].split(",")) == kinds - {"host"}, "all of a GPU"
    cases = {step: listed(*every, *arguments) for step, arguments in steps.items()}
    everything = [case for of_step in cases.values() for case in of_step]
    assert len(everything) == len(set(everything)), "a case is in two steps"
    wanted = listed(*every, "--networks", "all"), listed(*every, "--networks", "adm64-b1,stream", "--dtypes", "fp16,fp32")
    assert problems(everything) >= problems(wanted[0]) | problems(wanted[1])
    core = [case for step, of_step in cases.items() if step.startswith("core") for case in of_step]
    assert {(op, dtype) for op in ops for dtype in ("bf16", "fp16", "fp32")} == {tuple(case.split("/")[i] for i in (0, 2)) for case in core}, "every op and dtype"
    assert {case for case in everything if case.startswith("network/")} <= set(core), "every network"
    assert problems(listed(*every, "--networks", "adm64-b1")) <= problems(core)


def test_a_step_that_is_there_twice(tmp_path):
    machine = Machine(tmp_path / "machine")
    (machine.folder / "list").write_text("g 1 --ops gemm\ng 1 --ops silu\n")
    result = machine.run("status")
    assert result.returncode == 2 and "list:2: step g is there twice" in result.stderr


@pytest.mark.parametrize("text", ["[]", "null", '{"seconds": "x"}', '{"done": "no"}', '{"seconds": -5}', "{"])
def test_a_damaged_part_is_named(tmp_path, text):
    machine = Machine(tmp_path / "machine")
    assert machine.run("part", "--only", "core-gemm/1").returncode == 0
    [file] = machine.folder.glob("*/core-gemm/01-of-02/part.json")
    file.write_text(text)
    result = machine.run("status")
    assert result.returncode == 2 and "part.json" in result.stderr and "Traceback" not in result.stderr
