"""scripts/record finish: a recorded folder made of parts, what it gains later, and what is refused."""

import gzip
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from tests.support.locks import held
from tests.support.record_machine import ENVIRONMENT, ROOT, Machine, edit, table

PROGRAM = os.environ.get("NOISEFLOOR_BINARY", "")
pytestmark = pytest.mark.skipif(not Path(PROGRAM).is_file(), reason="NOISEFLOOR_BINARY names no program")


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
        "README.md", "ceilings.csv", "env.json", "networks.csv", "parts.csv", "plan.csv", "roofline.png",
        "samples.jsonl.gz", "sweep.csv", "totals.csv"}
    assert [path.name for path in (second.folder / "made").iterdir()] == ["host"]
    rows = table(made / "sweep.csv")
    assert len(rows) == 5 + 61 and {row["status"] for row in rows} <= {"ok", "throttled"} and len({row["commit"] for row in rows}) == 1
    parts = table(made / "parts.csv")
    assert [(row["step"], row["part"], row["of"], row["problems"], row["rows"]) for row in parts] == [
        ("core-gemm", "1", "2", "3", "3"), ("core-gemm", "2", "2", "2", "2"), ("core-silu", "1", "1", "1", "1"),
        *(("rest-silu", str(index), "3", "20", "20") for index in (1, 2, 3))]
    texts = {path.name: path.read_text() for path in made.iterdir() if path.suffix not in (".gz", ".png")}
    texts["samples.jsonl"] = gzip.decompress((made / "samples.jsonl.gz").read_bytes()).decode()
    assert not [name for name, text in texts.items() if str(second.folder.parent) in text], "a path of the machine"
    commit = rows[0]["commit"]
    assert f"commit `{commit}`" in texts["README.md"] and "| `rest-silu` | 3 | 60 | 60 |" in texts["README.md"]
    # As the tests of the repository hold a recorded folder: it reads with all checks, and what is made of it is made of it.
    assert subprocess.run([PROGRAM, "gate", "--baseline", made, "--candidate", made], capture_output=True).returncode == 0
    assert subprocess.run([PROGRAM, "roofline", made], capture_output=True).returncode == 0
    assert (made / "totals.csv").read_text() == texts["totals.csv"] and (made / "plan.csv").read_text() == texts["plan.csv"]
    check = subprocess.run([sys.executable, ROOT / "reports/docs/write_docs.py", "--check", made / "README.md"], capture_output=True, text=True)
    assert check.returncode == 0, check.stderr
    plot = subprocess.run([sys.executable, ROOT / "reports/plots/plot_roofline.py", made, "--out", made / "p.svg"], capture_output=True, text=True)
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
    assert "| `rest-silu` | 1 of 3 | 20 of 60 | 20 |" in (made / "README.md").read_text()
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


def packed(folder):
    with tarfile.open(folder / "begun.tar.gz") as tar:
        return {entry.name: tar.extractfile(entry).read() for entry in tar}


def keep_search(machine, text):
    search = machine.folder / "parts/.cache/noisefloor/searches/a.json"
    search.parent.mkdir(parents=True, exist_ok=True)
    search.write_text(text)


BEGUN = "rest-silu/01-of-03"


def test_what_was_begun_goes_on_from_the_record(machines):
    """By someone who has the record alone."""
    first, second = machines
    kept, made = len(first.rows(BEGUN)), second.folder / "made"
    keep_search(first, "{}")
    assert first.run("finish", "--out", "made", "--only", "core-gemm").returncode == 0
    shutil.copytree(first.folder / "made", made)
    assert "begun.tar.gz" in (made / "README.md").read_text()
    files = packed(made)
    environment = json.loads(files[f"{BEGUN}/env.json"])
    assert {name.rpartition("/")[0] for name in files} == {BEGUN, ".cache/noisefloor/searches"} and f"{BEGUN}/sweep.csv" in files
    assert environment["host"] == "not recorded" and str(first.folder.parent) not in json.dumps(environment)
    (second.folder / "others").mkdir()
    status = second.run("status", "--record", "made", "--only", "rest", parts=("others",)).stdout.splitlines()
    assert status[1].split()[-3:] == ["1*", "2", "3"]
    # It gains a part, by someone who has not gone on with what was begun, which stays.
    assert second.run("finish", "--out", "made", "--only", "core-silu").returncode == 1
    assert {name for name in packed(made) if name.startswith(BEGUN)} == {name for name in files if name.startswith(BEGUN)}
    # A session was killed before its first row.
    (second.folder / "others" / BEGUN).mkdir(parents=True)
    (second.folder / "others" / BEGUN / "sweep.csv").write_text(files[f"{BEGUN}/sweep.csv"].decode().split("\n")[0] + "\n")
    result = second.run("part", "--record", "made", "--only", "rest-silu/1", parts=("others",))
    assert result.returncode == 0 and f"record: rest-silu/1 was begun: made has {kept} rows of it; on another GPU half-done problems are measured anew" in result.stderr, result.stderr
    assert f"{kept} cases are already in" in result.stderr and len(second.rows(BEGUN, "others")) == 20
    assert not (second.folder / "others/rest-silu/03-of-03").exists(), "not asked for"
    assert (second.folder / "others/.cache/noisefloor/searches/a.json").read_text() == "{}"
    assert second.run("part", "--record", "made", "--only", "rest-silu/2", parts=("others",)).returncode == 0
    assert second.run("finish", "--out", "made", parts=("others", second.folder / "parts")).returncode == 0
    assert not (made / "begun.tar.gz").exists() and "begun" not in (made / "README.md").read_text(), "it is whole"


def test_the_longest_copy_of_what_was_begun_counts(machines):
    first, second = machines
    rows = first.folder / "parts" / BEGUN / "sweep.csv"
    shutil.copytree(first.folder / "parts" / BEGUN, second.folder / "parts" / BEGUN)
    longer, shorter = rows.read_text(), rows.read_text().rsplit("\n", 2)[0] + "\n"
    for machine, other, text in ((first, second, shorter), (second, first, longer)):
        for each, content in ((machine, text), (other, shorter if text is longer else longer)):
            (each.folder / "parts" / BEGUN / "sweep.csv").write_text(content)
            keep_search(each, '{"lost": "the device"}' if each is second else "{}")
        result = first.run("finish", "--out", "made", "--only", "core-gemm", parts=("parts", second.folder / "parts"))
        assert result.returncode == 0, result.stderr
        files = packed(first.folder / "made")
        assert files[f"{BEGUN}/sweep.csv"].decode() == longer
        assert ".cache/noisefloor/searches/a.json" not in files, "it cost one of them its device"
        assert "rest-silu/03-of-03/sweep.csv" in files and "core-silu/01-of-01/sweep.csv" in files, "done, and not asked for"
    rows.write_text(shorter)
    assert first.run("finish", "--out", "made", "--only", "core-gemm").returncode == 0
    assert packed(first.folder / "made")[f"{BEGUN}/sweep.csv"].decode() == longer, "the record had more"
    rows.write_text(longer + longer.split("\n", 1)[1])
    edit(rows.parent / "env.json", lambda text: json.dumps({**json.loads(text), "cudnn": "another", "commit": "another"}))
    result = first.run("finish", "--out", "made", "--only", "core-gemm")
    assert result.returncode == 0 and "rows are not packed, they are of another commit" in result.stderr, result.stderr
    assert packed(first.folder / "made")[f"{BEGUN}/sweep.csv"].decode() == longer, "what can go on counts"


def test_what_was_begun_elsewhere_or_is_damaged_is_not_packed(machines):
    first, _ = machines
    environment = first.folder / "parts" / BEGUN / "env.json"
    text = environment.read_text()
    for content, says in ((text.replace(json.loads(text)["commit"], "another"), "of another commit"), ("[", "damaged: JSONDecodeError"), (None, "damaged: KeyError('env.json')")):
        environment.unlink() if content is None else environment.write_text(content)
        result = first.run("finish", "--out", "made", "--only", "core-gemm")
        assert result.returncode == 0 and f"rows are not packed, they are {says}" in result.stderr, result.stderr
        assert not (first.folder / "made/begun.tar.gz").exists()


def test_an_archive_of_what_was_begun_may_be_damaged(machines):
    first, second = machines
    assert first.run("finish", "--out", "made", "--only", "core-gemm").returncode == 0
    file = first.folder / "made/begun.tar.gz"
    whole = file.read_bytes()
    stranger = io.BytesIO()
    with tarfile.open(fileobj=stranger, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo("../elsewhere"), io.BytesIO())
    for content, says in ((b"no archive", "cannot be read: "), (whole[:-100], "cannot be read: "), (stranger.getvalue(), "../elsewhere is no file of a part, and no search")):
        file.write_bytes(content)
        result = second.run("part", "--record", first.folder / "made", "--only", "rest-silu/1", parts=("others",))
        assert result.returncode == 2 and f"made/begun.tar.gz: {says}" in result.stderr and "Traceback" not in result.stderr, result.stderr
    assert not list((second.folder / "others").glob("rest*"))


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


def test_finish_replaces_records_alone(tmp_path):
    machine = Machine(tmp_path / "machine")
    assert machine.run("part", "--only", "core-gemm").returncode == 0
    finish = "finish", "--only", "core-gemm", "--out"
    assert machine.run(*finish, "made").returncode == 0
    made = machine.folder / "made"
    (made / "kernels.csv").write_text("{}")
    assert machine.run(*finish, "made").returncode == 0 and (made / "kernels.csv").read_text() == "{}"
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
