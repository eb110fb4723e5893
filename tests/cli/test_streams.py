"""Streams that are closed, full or left by their reader, and files that talk to the terminal: nothing of it ends a sweep, and a table that
could not be printed is not a success."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.program import PROGRAM, needs_program, rows, sweep

pytestmark = [needs_program, pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")]


def shell(line, *arguments):
    return subprocess.run(["sh", "-c", line, PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=120)


def sweep_with(redirection, problems, out):
    return shell(f'"$0" sweep --device host --problems "$1" --networks all --out "$2" {redirection}', problems, out)


@pytest.mark.parametrize("redirection, code", [("2>&-", 2), (">&-", 2), (">&- 2>&- <&-", 2), ("2>/dev/full", 2), (">/dev/full", 2), (">/dev/full 2>&1", 2)])
def test_no_stream_ends_a_sweep(redirection, code, problems, tmp_path):
    result = sweep_with(redirection, problems, tmp_path / "run")
    assert result.returncode == code, result.stderr
    assert [row["status"] for row in rows(tmp_path / "run")] == ["ok"] * 3
    for file in (tmp_path / "run").iterdir():
        text = file.read_bytes()
        assert b" left)" not in text and b"noisefloor: " not in text, f"{file.name} was taken for a stream"
    if redirection == ">/dev/full":
        assert "noisefloor: stdout could not be written: No space left on device" in result.stderr


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("swept")
    (folder / "problems").mkdir()
    (folder / "problems" / "gemm.csv").write_text("network,m,n,k,count\nmini,8,16,24,3\n")
    for name in ("a", "b"):
        assert sweep(folder / "problems", folder / name).returncode == 0
    return folder


@pytest.mark.parametrize("command", [["roofline", "a"], ["gate", "--baseline", "a", "--candidate", "a"], ["compare", "a", "b"], ["history", "a", "b"],
                                     ["list", "ops"], ["list", "problems", "--format", "json"], ["devices"], ["--help"], ["--version"], ["sweep", "--help"]])
def test_a_full_disk_is_not_a_success(command, swept):
    with open("/dev/full", "w") as full:
        result = subprocess.run([PROGRAM, *command], stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, cwd=swept)
    assert result.returncode == 2 and "stdout could not be written" in result.stderr, result.stderr


def test_a_reader_that_goes_away_is_no_signal(swept):
    read, write = os.pipe()
    os.close(read)
    result = subprocess.run([PROGRAM, "list", "problems"], stdout=write, stderr=subprocess.PIPE, text=True, timeout=120)
    os.close(write)
    assert result.returncode == 2 and result.stderr == ""


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
def test_what_a_stderr_does_not_take_is_no_success(redirection, swept):
    assert shell(f'"$0" ab "$0" "$0" --device host --problems "$1" --networks all --filter bf16 {redirection}', swept / "problems").returncode in (1, 2)
    assert shell(f'"$0" gate --baseline "$1" --candidate "$1" {redirection}', swept / "a").returncode == 0, "it has nothing to say there"


def test_an_error_without_a_stderr(tmp_path):
    assert shell('"$0" roofline "$1" 2>&-', tmp_path).returncode == 2
    assert shell('"$0" roofline "$1" 2>/dev/full', tmp_path).returncode == 2
    assert shell('"$0" sweep --nonsense 2>/dev/full', tmp_path).returncode == 2


def test_files_do_not_talk_to_the_terminal(swept, tmp_path):
    escape = "\x1b[31m\x1b]0;title\x07"
    folder = tmp_path / "problems"
    folder.mkdir()
    (folder / "gemm.csv").write_text(f"network,m,n,k,count\nmini{escape},8,16,24,3\n")
    for arguments in (["list", "networks", "--problems", folder], ["list", "problems", "--problems", folder], ["roofline", f"none{escape}"],
                      ["sweep", "--ops", f"gemm{escape}"], ["gate", "--baseline", swept / "a", "--candidate", tmp_path / escape]):
        result = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, timeout=120)
        shown = result.stdout + result.stderr
        assert b"\x1b" not in shown and b"\x07" not in shown and b"\\x1b[31m" in shown, arguments
