"""`kill -9` at random moments: no row is lost or doubled, outputs are old or new, and what was left is cleaned up by the next command."""

import shutil
import subprocess
import time

from battery import MOST_SECONDS, PROGRAM, Battery, environment, run, sweep_arguments, training
from tests.cli.program import rows


def killed_after(seconds, arguments):
    process = subprocess.Popen([PROGRAM, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                               env=environment())
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(timeout=MOST_SECONDS)
    return process.returncode


def time_of(arguments):
    begin = time.monotonic()
    result = run(*arguments, timeout=300)
    assert result.returncode == 0, result.stderr.decode()
    return time.monotonic() - begin


def test_sweeps(swept, tmp_path, capsys):
    battery = Battery("killed sweeps")
    folder = tmp_path / "run"
    whole = time_of(sweep_arguments(swept, tmp_path / "timed"))
    kept = 0
    while battery.time_left():
        shutil.rmtree(folder, ignore_errors=True)
        times = {}
        for _ in range(battery.random.randrange(1, 4)):
            battery.counts["killed" if killed_after(battery.random.random() * whole, sweep_arguments(swept, folder)) < 0 else "ended"] += 1
            if (folder / "sweep.csv").is_file():
                lines = (folder / "sweep.csv").read_text()
                for row in rows(folder)[: max(0, lines.count("\n") - 1)]:
                    assert times.setdefault(row["problem"], row["time_cold_us"]) == row["time_cold_us"], "a finished row was measured again"
        result = run(*sweep_arguments(swept, folder))
        assert result.returncode == 0, result.stderr.decode()
        found = {row["problem"]: row["time_cold_us"] for row in rows(folder)}
        assert len(rows(folder)) == len(found) == 6 and times.items() <= found.items()
        assert run("gate", "--baseline", folder, "--candidate", folder).returncode == 0
        kept += len(times)
    battery.report(capsys, **{"rows kept": kept})


def test_accepts_and_merges(swept, tmp_path, capsys):
    battery = Battery("killed accepts, merges and reports")
    bases = tmp_path / "bases"
    accept = ["gate", "accept", "--baseline", bases / "base", "--candidate", swept / "b", "--force"]  # the machine may be loaded
    merge = ["merge", swept / "b", "--out", tmp_path / "merged", "--replace"]
    whole = {"accept": time_of(accept), "merge": time_of(merge)}
    runs = {(swept / name / "sweep.csv").read_bytes() for name in "ab"}
    while battery.time_left():
        what, arguments = battery.random.choice([("accept", accept), ("merge", merge)])
        arguments = [swept / battery.random.choice("ab") if argument == swept / "b" else argument for argument in arguments]
        battery.counts["killed" if killed_after(battery.random.random() * whole[what], arguments) < 0 else "ended"] += 1
        if what == "accept":
            assert (bases / "base" / "sweep.csv").read_bytes() in runs
            assert run("gate", "--baseline", bases / "base", "--candidate", bases / "base").returncode == 0
            history = run("history", bases, "--case", ".", "--csv", tmp_path / "history.csv")
            assert history.returncode == 0 and b"partial" not in history.stdout + (tmp_path / "history.csv").read_bytes(), "a copy in the making is counted"
        elif (tmp_path / "merged").exists():  # between two renames it is not there
            assert run("gate", "--baseline", tmp_path / "merged", "--candidate", tmp_path / "merged").returncode == 0
    assert run(*accept).returncode == 0 and run(*merge).returncode == 0
    assert not list(bases.glob("*.partial*")) and not list(tmp_path.glob("*.partial*")), "the next one cleans up"
    battery.report(capsys)


def test_a_sweep_whose_files_are_removed(swept, tmp_path, capsys):
    battery = Battery("sweeps whose files vanish")
    whole = time_of(sweep_arguments(swept, tmp_path / "timed"))
    while battery.time_left():
        folder = tmp_path / "run"
        shutil.rmtree(folder, ignore_errors=True)
        process = subprocess.Popen([PROGRAM, *map(str, sweep_arguments(swept, folder))], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   stdin=subprocess.DEVNULL, env=environment())
        time.sleep(battery.random.random() * whole)
        name = battery.random.choice(["sweep.csv", "samples.jsonl"])
        there = len(rows(folder)) if (folder / "sweep.csv").is_file() else 0
        (folder / name).unlink(missing_ok=True)
        _, errors = process.communicate(timeout=MOST_SECONDS)
        battery.judge(f"{name} removed", subprocess.CompletedProcess([], process.returncode, b"", errors), (0, 2))
        if process.returncode == 2 and b"removed during the sweep" in errors and name == "sweep.csv":
            assert b"are written again" in errors and len(rows(folder)) >= there
    battery.report(capsys)


def test_trainings(tmp_path, capsys):
    """Resumed as often as they were killed, they end in the same weights."""
    battery = Battery("killed trainings")
    arguments = training(tmp_path)
    whole = time_of(arguments)
    weights, losses = (tmp_path / "w").read_bytes(), (tmp_path / "losses").read_text()
    checkpoint, resumed = tmp_path / "checkpoint", 0
    while battery.time_left():
        for file in tmp_path.glob("*"):
            if file.name != "data":
                file.unlink()
        for _ in range(battery.random.randrange(1, 4)):
            more = ["--resume"] if checkpoint.exists() else []
            battery.counts["killed" if killed_after(battery.random.random() * whole, [*arguments, *more]) < 0 else "ended"] += 1
        resumed += checkpoint.exists()
        result = run(*arguments, *["--resume"] if checkpoint.exists() else [])
        assert result.returncode == 0, result.stderr.decode()
        assert (tmp_path / "w").read_bytes() == weights and (tmp_path / "losses").read_text() == losses
        assert not list(tmp_path.glob("*.partial")), "the next one cleans up"
    battery.report(capsys, resumed=resumed)
