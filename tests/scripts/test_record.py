"""scripts/record: its list against the problem files, parts that are cut short and carried to another machine, and the folder made of them."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.locks import held

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("NOISEFLOOR_BINARY", "")
pytestmark = pytest.mark.skipif(not Path(PROGRAM).is_file(), reason="NOISEFLOOR_BINARY names no program")
LIST = """# a comment
every       -  --device host --problems problems --kinds host --pytorch off
core-gemm   2  --ops gemm --networks all
core-silu   1  --ops elementwise --networks mini
rest-silu   3  --ops elementwise --networks all --without mini
"""


# Ceilings are measured once for all of these folders.
ENVIRONMENT = {"XDG_CACHE_HOME": str(Path.home() / ".cache"), **os.environ}


class Machine:
    """A folder with problems, a list, and parts."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "problems").mkdir(parents=True)
        (folder / "list").write_text(LIST)
        (folder / "problems/gemm.csv").write_text("network,m,n,k,count\n" + "".join(f"mini,{m},16,24,1\n" for m in range(1, 6)))
        (folder / "problems/elementwise.csv").write_text("network,op,hw,channels,count\nmini,silu,16,8,1\n" + "".join(f"other,silu,{hw},8,1\n" for hw in range(20, 80)))

    def command(self, command, *more, parts=("parts",)):
        places = [word for place in parts for word in ("--parts", place)]
        return [str(word) for word in (sys.executable, ROOT / "scripts/record", command, "--list", "list", *places, *more)]

    def run(self, command, *more, parts=("parts",), env=ENVIRONMENT):
        return subprocess.run(self.command(command, *more, parts=parts), cwd=self.folder, capture_output=True, text=True, timeout=300, env=env)

    def rows(self, part):
        return table(self.folder / "parts" / part / "sweep.csv")


def table(file):
    with open(file, newline="") as stream:
        return list(csv.DictReader(stream))


def edit(file, change):
    file.write_text(change(file.read_text()))


@pytest.fixture(scope="module", autouse=True)
def quick_browser(tmp_path_factory):
    """A browser that draws nothing, which saves two seconds a folder; the first test, and tests/browser, have the real one."""
    browser = tmp_path_factory.mktemp("browser") / "chromium"
    browser.write_text('#!/bin/sh\nfor word; do case "$word" in --screenshot=*) : >"${word#*=}" ;; esac; done\n')
    browser.chmod(0o755)
    path = ENVIRONMENT["PATH"]
    ENVIRONMENT["PATH"] = f"{browser.parent}:{path}"
    yield path
    ENVIRONMENT["PATH"] = path


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """All parts, made on two machines; the first one's session was killed, and its half-done problem is measured again."""
    first, second = (Machine(tmp_path_factory.mktemp(name)) for name in ("first", "second"))
    assert first.run("part", "--only", "core-gemm").returncode == 0
    assert second.run("part", "--only", "core-silu,rest-silu/3").returncode == 0
    with open(first.folder / "log", "w") as log:
        session = subprocess.Popen(first.command("part", "--only", "rest-silu/1"), cwd=first.folder, stderr=log, start_new_session=True, env=ENVIRONMENT)
        rows = first.folder / "parts/rest-silu/01-of-03/sweep.csv"
        while session.poll() is None and (not rows.exists() or len(rows.read_text().splitlines()) < 3):
            time.sleep(0.005)
        os.killpg(session.pid, signal.SIGKILL)
        session.wait()
    return first, second


@pytest.fixture
def machines(whole, tmp_path):
    """Copies, to be spoilt."""
    for machine in whole:
        shutil.copytree(machine.folder, tmp_path / machine.folder.name)
    copies = [object.__new__(Machine) for _ in whole]
    for copy, machine in zip(copies, whole):
        copy.folder = tmp_path / machine.folder.name
    return copies


def test_parts_made_on_two_machines_become_a_recorded_folder(machines, quick_browser):
    first, second = machines
    kept = len(first.rows("rest-silu/01-of-03"))
    assert 2 <= kept < 20 and "rest-silu" in first.run("status").stdout
    shutil.copytree(first.folder / "parts/rest-silu", second.folder / "parts/rest-silu", dirs_exist_ok=True)
    result = second.run("part", "--only", "rest")  # the rest of what was killed, and the part that nobody has begun
    assert result.returncode == 0, result.stderr
    assert f"{kept} cases are already in" in result.stderr
    assert [line for line in result.stderr.splitlines() if line.startswith("record:")] == ["record: rest-silu/1 of 3", "record: rest-silu/2 of 3"]
    result = second.run("finish", "--out", "made/host", parts=("parts", first.folder / "parts"), env=ENVIRONMENT | {"PATH": quick_browser})
    assert result.returncode == 0 and "missing" not in result.stdout, result.stderr
    made = second.folder / "made/host"
    if shutil.which("chromium", path=quick_browser):
        assert (made / "report.png").read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in made.iterdir()} - {"report.png"} == {
        "README.md", "ceilings.csv", "env.json", "networks.csv", "parts.csv", "plan.csv", "roofline.csv", "roofline.png",
        "samples.jsonl", "sweep.csv", "totals.csv"}
    assert [path.name for path in (second.folder / "made").iterdir()] == ["host"]
    rows = table(made / "sweep.csv")
    assert len(rows) == 5 + 61 and {row["status"] for row in rows} <= {"ok", "throttled"} and len({row["commit"] for row in rows}) == 1
    parts = table(made / "parts.csv")
    assert [(row["step"], row["part"], row["of"], row["problems"], row["rows"]) for row in parts] == [
        ("core-gemm", "1", "2", "3", "3"), ("core-gemm", "2", "2", "2", "2"), ("core-silu", "1", "1", "1", "1"),
        *(("rest-silu", str(index), "3", "20", "20") for index in (1, 2, 3))]
    texts = {path.name: path.read_text() for path in made.iterdir() if path.suffix != ".png"}
    assert not [name for name, text in texts.items() if str(second.folder.parent) in text], "a path of the machine"
    commit = rows[0]["commit"]
    assert f"commit `{commit}`" in texts["README.md"] and "| `rest-silu` | 3 of 3 | 60 of 60 | 60 |" in texts["README.md"]
    # As the tests of the repository hold a recorded folder: it reads with all checks, and what is made of it is made of it.
    assert subprocess.run([PROGRAM, "gate", "--baseline", made, "--candidate", made], capture_output=True).returncode == 0
    assert subprocess.run([PROGRAM, "roofline", made], capture_output=True).returncode == 0
    assert (made / "totals.csv").read_text() == texts["totals.csv"] and (made / "plan.csv").read_text() == texts["plan.csv"]
    check = subprocess.run([sys.executable, ROOT / "reports/write_docs.py", "--check", made / "README.md"], capture_output=True, text=True)
    assert check.returncode == 0, check.stderr
    plot = subprocess.run([sys.executable, ROOT / "reports/plot_roofline.py", made, "--out", made / "p.svg"], capture_output=True, text=True)
    assert plot.returncode == 0 and f"commit {commit}" in (made / "p.svg").read_text(), plot.stderr
    # A second time in its place, with the record of another command kept.
    (made / "kernels.csv").write_text("kernels\n")
    assert second.run("finish", "--out", "made/host", parts=("parts", first.folder / "parts")).returncode == 0
    assert (made / "kernels.csv").read_text() == "kernels\n" and not (made / "p.svg").exists()


def test_what_is_missing_is_named(machines):
    first, _ = machines
    result = first.run("finish", "--out", "made")
    assert result.returncode == 1, result.stderr
    missing = result.stdout.splitlines()
    assert len(missing) == 1 + 60 and "missing: core-silu/1: elementwise/op=silu,hw=16,channels=8/bf16" in missing
    assert len(table(first.folder / "made/sweep.csv")) == 5, "of a part that is not done there is nothing"
    assert "Not measured: `core-silu`, `rest-silu`." in (first.folder / "made/README.md").read_text()
    assert first.run("finish", "--out", "made", "--only", "core-gemm").returncode == 0
    result = first.run("finish", "--out", "problems")
    assert result.returncode == 2 and "problems is there, and not a recorded folder" in result.stderr


def test_a_record_gains_parts_measured_later(machines):
    """By someone who has the record alone, not the parts that it was made of."""
    first, second = machines
    assert first.run("finish", "--out", "made", "--only", "core-gemm").returncode == 0
    before = table(first.folder / "made/sweep.csv")
    made = second.folder / "made"
    shutil.copytree(first.folder / "made", made)
    assert second.run("part", "--record", "made", "--only", "core").returncode == 0
    assert not (second.folder / "parts/core-gemm").exists(), "the record has it"
    status = second.run("status", "--record", "made", "--only", "core").stdout.splitlines()
    assert [line.split()[:3] for line in status[1:3]] == [["core-gemm", "2", "2"], ["core-silu", "1", "1"]] and status[3] == "about 0 minutes left"
    result = second.run("finish", "--out", "made")
    assert result.returncode == 1 and {line.split()[1] for line in result.stdout.splitlines()} == {"rest-silu/1:", "rest-silu/2:"}, result.stderr
    rows = table(made / "sweep.csv")
    assert rows[:5] == before and len(rows) == 5 + 1 + 20
    parts = table(made / "parts.csv")
    assert [(row["step"], row["rows"]) for row in parts if row["seconds"]] == [("core-gemm", "3"), ("core-gemm", "2"), ("core-silu", "1"), ("rest-silu", "20")]
    environment = json.loads((made / "env.json").read_text())
    assert environment["merged_from"] == ["core-gemm/1", "core-gemm/2", "core-silu/1", "rest-silu/3"] and "hosts" not in environment
    assert all(len(values) == 4 for values in environment.get("of_parts", {}).values()) and len(environment["command_lines"]) == 3
    assert str(second.folder) not in (made / "env.json").read_text()
    assert subprocess.run([PROGRAM, "gate", "--baseline", made, "--candidate", made], capture_output=True).returncode == 0
    assert [path.name for path in second.folder.glob(".made*")] == []
    result = second.run("finish", "--out", "made")
    assert result.returncode == 2 and "made has all of these parts already" in result.stderr
    assert second.run("part", "--only", "rest-silu/2").returncode == 0
    edit(second.folder / "list", lambda text: text.replace("core-gemm   2", "core-gemm   3"))
    result = second.run("finish", "--out", "made")
    assert result.returncode == 2 and "made has core-gemm/1, which this list has with other problems" in result.stderr
    assert len(table(made / "sweep.csv")) == len(rows)
    result = second.run("part", "--record", "problems")
    assert result.returncode == 2 and "--record: problems is not a recorded folder" in result.stderr


@pytest.mark.parametrize("field", ["commit", "driver", "device"])
def test_a_record_of_another_origin_gains_nothing(field, machines):
    first, second = machines
    assert first.run("finish", "--out", "made", "--only", "core-gemm").returncode == 0
    edit(first.folder / "made/env.json", lambda text: json.dumps({**json.loads(text), field: "another"}))
    result = second.run("part", "--record", first.folder / "made", "--only", "core", parts=("others",))
    assert result.returncode == 2 and f"made is of {field} another, this is " in result.stderr, result.stderr
    assert not (second.folder / "others").exists(), "nothing is measured"


def test_ceilings_of_a_record_that_gains_parts_are_those_of_all_parts_at_once(machines):
    first, second = machines
    folders = [first.folder / "parts/core-gemm/01-of-02", first.folder / "parts/core-gemm/02-of-02", second.folder / "parts/core-silu/01-of-01"]
    for folder, factor in zip(folders, (100, 300, 700)):
        lines = [line.split(",") for line in (folder / "ceilings.csv").read_text().splitlines()]
        (folder / "ceilings.csv").write_text("".join(",".join([line[0], str(factor) if number else line[1], *line[2:]]) + "\n" for number, line in enumerate(lines)))
    parts, found = ("parts", second.folder / "parts"), lambda name: {row["name"]: float(row["value"]) for row in table(first.folder / name / "ceilings.csv")}  # noqa: E731
    assert first.run("finish", "--out", "once", "--only", "core", parts=parts).returncode == 0
    assert set(found("once").values()) == {300}
    assert first.run("finish", "--out", "later", "--only", "core-gemm").returncode == 0
    shutil.copytree(first.folder / "later", first.folder / "older")
    edit(first.folder / "older/env.json", lambda text: json.dumps({**json.loads(text), "of_parts": {}}))  # as before these were kept
    for name, value in (("later", 300), ("older", 200)):
        assert first.run("finish", "--out", name, "--only", "core-silu", parts=parts).returncode == 1  # rest-silu is missing
        assert set(found(name).values()) == {value}, name
        assert found(name).keys() == found("once").keys()
        assert len(json.loads((first.folder / name / "env.json").read_text())["of_parts"]["ceilings"]) == 3
    header = [(first.folder / name / "ceilings.csv").read_text().splitlines()[0] for name in ("once", "later")]
    assert header[0] == header[1]


def test_a_record_is_never_lost(machines):
    first, second = machines
    assert first.run("finish", "--out", "made", "--only", "core-gemm").returncode == 0
    made, parts = first.folder / "made", ("parts", second.folder / "parts")
    before = (made / "sweep.csv").read_bytes()
    with held(first.folder):
        result = first.run("finish", "--out", "made", parts=parts)
    assert result.returncode == 2 and "another record is being finished in" in result.stderr
    # A finish that was killed between its two renames.
    made.rename(first.folder / ".made.old")
    (first.folder / ".made.new").mkdir()
    result = first.run("finish", "--out", "elsewhere/../made", "--only", "core-silu", parts=parts)
    assert result.returncode == 1 and "what it was to replace is back" in result.stderr, result.stderr  # 1: rest-silu is missing
    assert (made / "sweep.csv").read_bytes().startswith(before) and len(table(made / "sweep.csv")) == 6
    assert not list(first.folder.glob(".made*"))
    # Of another commit: nothing of it is lost, wherever it lies.
    for name in ("env.json", "sweep.csv", "ceilings.csv"):
        commit = json.loads((made / "env.json").read_text())["commit"] if name == "env.json" else commit
        edit(made / name, lambda text: text.replace(commit, "another"))
    result = first.run("finish", "--out", "made", "--only", "core-gemm")
    assert result.returncode == 2 and "made is of another build and has core-silu/1 and 0 more parts" in result.stderr
    (first.folder / "link").symlink_to("made")
    assert "link is a link" in first.run("finish", "--out", "link").stderr


def test_parts_of_two_builds_are_refused(machines):
    first, second = machines
    edit(second.folder / "parts/core-silu/01-of-01/env.json", lambda text: text.replace('"Release"', '"Debug"'))
    result = first.run("finish", "--out", "made", parts=("parts", second.folder / "parts"))
    assert result.returncode == 2 and "is of another build: 'build_type' is \"Debug\"" in result.stderr
    assert not (first.folder / "made").exists() and not list(first.folder.glob(".made*"))
    assert first.run("finish", "--out", "made", "--only", "core-gemm").returncode == 0
    before = (first.folder / "made/sweep.csv").read_bytes()
    result = first.run("finish", "--out", "made", parts=("parts", second.folder / "parts"))
    assert result.returncode == 2 and "is of another build: 'build_type' is" in result.stderr
    assert (first.folder / "made/sweep.csv").read_bytes() == before and not list(first.folder.glob(".made*"))


def test_a_case_without_a_row_is_missing(machines):
    first, _ = machines
    edit(first.folder / "list", lambda text: text.replace("--kinds host", "--kinds host,baseline", 1))
    assert first.run("part", "--only", "core-gemm/1", parts=("others",)).returncode == 0
    rows = first.folder / "others/core-gemm/01-of-02/sweep.csv"
    lines = rows.read_text().splitlines(keepends=True)
    rows.write_text("".join(lines[:-1]))
    result = first.run("finish", "--only", "core-gemm/1", "--out", "made", parts=("others",))
    assert result.returncode == 1 and len(result.stdout.splitlines()) == 1 and result.stdout.startswith("missing: core-gemm/1: gemm/"), result.stderr


@pytest.mark.parametrize("field", ["commit", "driver", "device"])
def test_parts_of_another_origin_are_refused(field, machines):
    first, second = machines
    folder = second.folder / "parts/core-silu/01-of-01"
    value = json.loads((folder / "env.json").read_text())[field]
    for name in ("env.json", "sweep.csv", "ceilings.csv"):
        edit(folder / name, lambda text: text.replace(value, "another"))
    result = first.run("finish", "--out", "made", parts=("parts", second.folder / "parts"))
    assert result.returncode == 2 and f"is of {field} 'another'" in result.stderr, result.stderr
    assert not (first.folder / "made").exists()
    for state in ("done", "begun"):
        result = second.run("part", "--only", "core")
        assert result.returncode == 2 and f"core-silu/1 is of {field} another, this is {value}" in result.stderr, state
        assert not (second.folder / "parts/core-gemm").exists(), "nothing is measured"
        (folder / "part.json").unlink(missing_ok=True)


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


@pytest.mark.parametrize("arguments, says", [
    (["part", "--only", "core-conv"], "--only: unknown 'core-conv'; the steps are core-gemm, core-silu, rest-silu"),
    (["part", "--minutes", "0"], "--minutes is 0, not a number above 0"),
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


def test_finish_replaces_records_alone(tmp_path):
    machine = Machine(tmp_path / "machine")
    assert machine.run("part", "--only", "core-gemm").returncode == 0
    finish = "finish", "--only", "core-gemm", "--out"
    assert machine.run(*finish, "made").returncode == 0
    made = machine.folder / "made"
    (made / "gate_noise.json").write_text("{}")
    assert machine.run(*finish, "made").returncode == 0 and (made / "gate_noise.json").read_text() == "{}"
    (made / "notes").mkdir()
    result = machine.run(*finish, "made")
    assert result.returncode == 2 and "not a recorded folder" in result.stderr and (made / "notes").is_dir()
    [parts] = {file.parents[2] for file in machine.folder.glob("*/core-gemm/01-of-02/part.json")}
    result = machine.run(*finish, parts / "core-gemm/01-of-02")
    assert result.returncode == 2 and "among the parts" in result.stderr
    (parts / "core-gemm/01-of-02/samples.jsonl").write_text("{")
    (made / "notes").rmdir()
    assert machine.run(*finish, "made").returncode == 2
    assert (made / "sweep.csv").exists() and not list(machine.folder.glob(".made*"))


def test_parts_of_another_list_are_refused(tmp_path):
    machine = Machine(tmp_path / "machine")
    assert machine.run("part", "--only", "core-gemm").returncode == 0
    text = (machine.folder / "list").read_text()
    line = next(line for line in text.splitlines() if line.startswith("core-gemm"))
    (machine.folder / "list").write_text(text.replace(line, line + " --variants host --dtypes fp32"))
    result = machine.run("finish", "--only", "core-gemm", "--out", "made")
    assert result.returncode == 2 and "was measured by another list" in result.stderr
