"""Disks that are full and limits on files: a command either does what it was asked, or says that it could not and leaves what was there."""

import os
import resource
import shutil
import subprocess

import pytest
from battery import Battery, run, sweep_arguments, training
from tests.cli.program import rows


def limit(most):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def outputs(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name not in (".lock", "sweep.csv", "samples.jsonl")}


def test_reports_are_old_or_new(swept, tmp_path, capsys):
    """The limit falls anywhere within any of the files."""
    battery = Battery("files cut by a limit")
    shutil.copytree(swept / "a", tmp_path / "made")
    assert run("roofline", tmp_path / "made").returncode == 0
    new = outputs(tmp_path / "made")
    largest = max(map(len, new.values()))
    folder = tmp_path / "run"
    while battery.time_left():
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(swept / "a", folder)
        for name in ("roofline.csv", "totals.csv", "plan.csv", "report.html"):
            (folder / name).write_text("old")
        old = outputs(folder)
        most = int((2 * largest) ** battery.random.random())
        result = run("roofline", folder, limits=limit(most))
        battery.judge(f"roofline with at most {most} bytes a file", result)
        for name, text in outputs(folder).items():
            made = new.get(name)
            assert text in (old.get(name), made) or (name == "report.html" and len(text) == len(made)), f"{name} is neither old nor new"
        assert not list(folder.glob("*.partial"))
    battery.report(capsys)
    assert battery.counts["refused"] > 3


def test_a_sweep_that_met_a_limit_resumes(swept, tmp_path, capsys):
    battery = Battery("sweeps cut by a limit")
    while battery.time_left():
        folder = tmp_path / "run"
        shutil.rmtree(folder, ignore_errors=True)
        most = int(200 * 5000 ** battery.random.random())
        result = run(*sweep_arguments(swept, folder), f"--benchmark_out={tmp_path / 'out.json'}", limits=limit(most))
        battery.judge(f"sweep with at most {most} bytes a file", result, (0, 2))
        finished = {row["problem"] for row in rows(folder) if None not in row.values()} if (folder / "sweep.csv").is_file() else set()
        assert run(*sweep_arguments(swept, folder)).returncode == 0
        found = [row["problem"] for row in rows(folder)]
        assert len(found) == len(set(found)) == 6 and all(row["status"] == "ok" for row in rows(folder))
        assert run("gate", "--baseline", folder, "--candidate", folder).returncode == 0, "rows have their samples"
        assert finished <= set(found)
    battery.report(capsys)


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(tmp_path, capsys):
    """A checkpoint takes four times the weights: the limit lies between no byte and all of them."""
    battery = Battery("checkpoints cut by a limit")
    arguments = training(tmp_path)
    assert run(*arguments).returncode == 0
    checkpoint, largest = tmp_path / "checkpoint", (tmp_path / "checkpoint").stat().st_size
    checkpoint.unlink()
    held = None
    while battery.time_left():
        more = ["--resume"] if checkpoint.exists() else []
        result = run(*arguments, *more, limits=limit(int(battery.random.random() * 1.2 * largest)))
        battery.judge("a training", result, (0, 2))
        assert b".partial" not in result.stderr, "files of the user's are named"
        if held and result.returncode == 2:
            assert checkpoint.read_bytes() == held and b"the one before it is whole" in result.stderr, result.stderr
        held = checkpoint.read_bytes() if checkpoint.exists() else None
        assert not list(tmp_path.glob("*.partial"))
    assert run(*arguments, *["--resume"] if checkpoint.exists() else []).returncode == 0
    battery.report(capsys)
    assert battery.counts["refused"] > 1


@pytest.fixture
def full_disk(tmp_path):
    """A file system of 1 MiB, where this machine lets us make one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    made = os.geteuid() == 0 and subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk], capture_output=True).returncode == 0
    if not made:
        pytest.skip("mounting needs root, and a container that allows it")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_full_disk(swept, full_disk, tmp_path):
    shutil.copytree(swept / "a", full_disk / "run")
    (full_disk / "run" / "roofline.csv").write_text("old")
    filler = os.open(full_disk / "filler", os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(filler, b"x" * 512)
    except OSError:
        os.close(filler)
    battery = Battery("a full disk")
    for arguments in (["roofline", full_disk / "run"], ["gate", "--baseline", swept / "a", "--candidate", swept / "a", "--markdown", full_disk / "m.md"],
                      ["merge", swept / "a", "--out", full_disk / "merged"], sweep_arguments(swept, full_disk / "new"),
                      ["gate", "accept", "--baseline", full_disk / "base", "--candidate", swept / "a"],
                      [*sweep_arguments(swept, swept / "a"), f"--benchmark_out={full_disk / 'out.json'}"]):
        battery.judge(str(arguments[0]), run(*arguments), (2,))
    assert (full_disk / "run" / "roofline.csv").read_text() == "old"
    assert not (full_disk / "merged").exists() and not (full_disk / "base").exists() and not (full_disk / "out.json").exists()
