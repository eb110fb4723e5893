"""Every option that names a file to write, from the commands' own help: a new one is tested by being there."""

import os
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.cli.gated_runs import write_run
from tests.cli.program import PROGRAM, SMALL, needs_program, run, stub_build

pytestmark = needs_program
NOBODY = 65534


def help_of(*command):
    return run(*command, "--help").stdout if Path(PROGRAM).is_file() else ""


COMMANDS = re.findall(r"^  ([a-z-]+)[, ]", help_of().partition("Subcommands:")[2], re.M)
HELP = {command: help_of(command) for command in COMMANDS}
OUTPUTS = [(command, option) for command in COMMANDS for option in re.findall(r"(--[\w-]+)[ =]\[?OUTFILE", HELP[command])]
VALUES = {command: re.findall(r"^  (?:-\w,)?(--[\w-]+) (?!Excludes:)[A-Z]", HELP[command], re.M) for command in COMMANDS}
# What a command needs to write all of its files; tune has nothing to time on a host, and writes none here.
ARGUMENTS = {
    "run": "gemm --device host --problem m=8,n=8,k=8 --counters off",
    "sweep": "--device host --problems problems --networks other --out run",
    "ceilings": "--device host",
    "history": "a b",
    "gate": "--baseline a --candidate b",
    "compare": "a b",
    "which": "--networks net-b1 --run a",
    "forward": "digits --device host --input input.safetensors",
    "sample": "digits --device host --steps 1",
    "train": "digits --device host --data data.safetensors --batch 2 --steps 1",
    "stream": "digits --device host --frames 2 --deadline 1s",
    "tune": "groupnorm --device host",
    "pair": "gemm host host --device host --problem m=8,n=8,k=8",
    "ab": "old new --problems problems --networks other",
}
NEEDED = {"forward": ["--output"], "sample": ["--out"], "train": ["--out"], "tune": ["--out"]}  # files that are no choice
MORE = {"--strip": ["--every", "1"], "--gif": ["--every", "1"]}


def test_the_table_is_all_of_it():
    assert {command for command, _ in OUTPUTS} == set(ARGUMENTS), "say in ARGUMENTS how a new command is run"
    assert {("gate", "--junit"), ("sample", "--tensor"), ("sweep", "--benchmark_out"), ("forward", "--trace")} <= set(OUTPUTS)


@pytest.fixture(scope="module")
def place():
    """A folder that everybody may read, with runs, problems and builds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        write_run(folder / "a", [50.0] * 3)
        write_run(folder / "b", [50.0] * 3, seed=1)
        (folder / "problems").mkdir()
        (folder / "problems" / "gemm.csv").write_text(SMALL)
        recorded = load_file(Path(__file__).with_name("digits_forward.safetensors"))
        save_file({name: recorded[name] for name in ("x", "sigma", "labels")}, folder / "input.safetensors")
        save_file({"images": np.zeros((2, 1, 8, 8), np.float32), "labels": np.arange(2)}, folder / "data.safetensors")
        for build in ("old", "new"):
            stub_build(folder / build)
        yield folder


def command_of(command, files):
    """The command with these files, by option, and what it cannot be without."""
    files = {option: "/dev/null" for option in NEEDED.get(command, [])} | files
    words = [command, *ARGUMENTS[command].split()]
    for option in files:
        words += [f"{option}={files[option]}"] if option.startswith("--benchmark_") else [option, files[option]]
    for more in {tuple(MORE[option]) for option in files if option in MORE}:
        words += more
    return words


def ran(place, words, **how):
    """Once more where the threads of a paired comparison had to wait for a core."""
    for _ in range(10):
        result = subprocess.run([PROGRAM, *words], cwd=place, capture_output=True, timeout=500, **how)
        if b"waited for a core" not in result.stdout + result.stderr:
            break
    assert result.returncode == 0, result.stderr.decode()
    return result


def lines(data):
    """Without the numbers, which each run has of its own, and the widths that they take."""
    return [re.sub(r"[\s\d.+#-]+", "#", line) for line in data.decode("latin-1").split("\n")]


@pytest.fixture(scope="module")
def written(place):
    """By command, what it writes where its files are links: {option: bytes}, and what it says then."""
    known = {}

    def write(command):
        if command not in known:
            options = [option for one, option in OUTPUTS if one == command]
            files = {}
            for dangling in (False, True):
                folder = place / f"{command}-{dangling}"
                (folder / "deep").mkdir(parents=True)
                for option in options:
                    target, link = folder / "deep" / f"target{option}", folder / f"link{option}"
                    link.symlink_to(f"deep/target{option}")
                    if not dangling:
                        target.write_text("old")
                        target.chmod(0o640)
                result = ran(place, command_of(command, {option: folder / f"link{option}" for option in options}))
                for option in options:
                    target, link = folder / "deep" / f"target{option}", folder / f"link{option}"
                    assert link.is_symlink() and os.readlink(link) == f"deep/target{option}", f"{command} {option} replaced the link"
                    assert target.is_file() and not target.is_symlink(), f"{command} {option} did not follow the link"
                    assert target.stat().st_mode & 0o777 == 0o640 or dangling
                    files[option] = target.read_bytes()
                    assert files[option] and files[option] != b"old"
                assert len(list(folder.iterdir())) == len(options) + 1 and len(list((folder / "deep").iterdir())) == len(options)
            known[command] = files, result.stdout
        return known[command]

    return write


WORKING = [(command, option) for command, option in OUTPUTS if command != "tune"]


@pytest.mark.parametrize("command", dict.fromkeys(command for command, _ in WORKING))
def test_links_are_followed(command, written):
    written(command)


@pytest.mark.parametrize("command, option", WORKING)
def test_stdout_in_a_pipe_gets_the_file_alone(command, option, written, place):
    files, words = written(command)
    device = os.lstat("/dev/stdout").st_ino  # a look may change its time of access
    result = ran(place, command_of(command, {option: "/dev/stdout"}))
    assert os.lstat("/dev/stdout").st_ino == device
    got, file = lines(result.stdout), lines(files[option])
    assert got[0][:4] == file[0][:4] and len(result.stdout) > 8
    said = {line for line in lines(words) if len(line.replace("#", "").strip()) > 8}
    assert not (said - set(file)) & set(got), "its own words are in the file"
    assert set(re.findall(rb"[A-Za-z]{5,}", words)) & set(re.findall(rb"[A-Za-z]{5,}", result.stderr)), "its words are not on stderr"


def refusals(place, command, option, value, **how):
    before = sorted(str(path) for path in place.rglob("*"))
    result = subprocess.run([PROGRAM, *command_of(command, {option: value})], cwd=place, capture_output=True, text=True, timeout=100, **how)
    assert result.returncode == 2 and option in result.stderr and not result.stdout, result
    assert result.stderr.count("\n") <= 2, "something was begun"
    assert sorted(str(path) for path in place.rglob("*")) == before
    return result.stderr


def as_nobody(*groups):
    """How to run the program without root's rights, where this is root."""
    if os.geteuid() != 0:
        return {}
    how = {"user": NOBODY, "group": NOBODY, "extra_groups": groups}
    try:
        subprocess.run([PROGRAM, "--version"], capture_output=True, check=True, **how)
    except (OSError, subprocess.SubprocessError):
        pytest.skip("nobody may not run the program here")
    return how


@pytest.mark.parametrize("command, option", OUTPUTS)
def test_what_cannot_be_written_is_refused_before_anything_else(command, option, place):
    closed = place / "closed"
    closed.mkdir(exist_ok=True)
    closed.chmod(0o555)
    assert "is a folder" in refusals(place, command, option, str(closed))
    assert "there is no folder" in refusals(place, command, option, "none/x")
    assert "empty" in refusals(place, command, option, "")
    how = as_nobody()
    assert "Permission denied" in refusals(place, command, option, str(closed / "x"), **how)
    (place / "kept").write_text("kept")
    (place / "kept").chmod(0o444)
    assert "read-only" in refusals(place, command, option, "kept", **how) and (place / "kept").read_text() == "kept"


@pytest.mark.parametrize("command", COMMANDS)
def test_an_empty_value_is_a_wrong_one(command):
    for option in VALUES[command]:
        for words in ([option, ""], [option, ","], [f"{option}="]):
            result = run(command, *words)
            assert result.returncode == 2 and option in result.stderr and "empty" in result.stderr, (words, result)
    assert VALUES[command] or command in ("roofline", "devices"), "help is read as it is printed"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for files of other users")
def test_files_of_other_users_that_may_be_written(place):
    """In a folder like /tmp they cannot be renamed to; in a team's the team may write them afterwards, too."""
    user, team = 12345, 12346
    for name, mode, owners in (("sticky", 0o1777, (user, user)), ("team", 0o770, (user, team))):
        folder = place / name
        folder.mkdir()
        file = folder / "file.csv"
        file.write_text("old and longer than what is written: " + 1000 * "x")
        for path, bits in ((folder, mode), (file, 0o4666 if name == "sticky" else 0o664)):
            os.chown(path, *owners)
            path.chmod(bits)
        ran(place, command_of("history", {"--csv": str(file)}), **as_nobody(team))
        assert file.read_text().startswith("device,series,") and "x" * 9 not in file.read_text()
        status = file.stat()
        assert status.st_gid == owners[1] and not status.st_mode & 0o4000 and status.st_mode & 0o060 == 0o060
        assert [path.name for path in folder.iterdir()] == ["file.csv"]


def test_a_reader_that_goes_away_is_an_error(place):
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run([PROGRAM, *command_of("history", {"--csv": "/dev/stdout"})], cwd=place, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert result.returncode == 2 and b"cannot be written" in result.stderr


def test_help_names_the_program():
    assert "Usage: noisefloor [OPTIONS]" in help_of()
    for command in COMMANDS:
        assert f"Usage: noisefloor {command} [" in HELP[command]


def test_folders_are_made_where_links_lead(place, problems, tmp_path):
    (tmp_path / "deep").mkdir()
    for name in ("run", "merged", "baseline", "kernel"):
        (tmp_path / name).symlink_to(f"deep/{name}")
    sweep = ("sweep", "--device", "host", "--problems", problems, "--networks", "other")
    for words in ([*sweep, "--out", tmp_path / "run"], ["merge", tmp_path / "run", "--out", tmp_path / "merged"],
                  ["merge", tmp_path / "run", "--out", tmp_path / "merged", "--replace"],
                  ["new-kernel", "gemm", "--out", tmp_path / "kernel"],
                  ["gate", "accept", "--baseline", tmp_path / "baseline", "--candidate", place / "a"],
                  ["gate", "accept", "--baseline", tmp_path / "baseline", "--candidate", place / "b"]):
        result = run(*words)
        assert result.returncode == 0, (words, result.stderr)
    for name, file in (("run", "sweep.csv"), ("merged", "sweep.csv"), ("baseline", "sweep.csv"), ("kernel", "gemm.cu")):
        assert (tmp_path / name).is_symlink() and (tmp_path / "deep" / name / file).is_file(), name
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == ["baseline", "kernel", "merged", "run"]
