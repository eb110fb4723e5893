"""Command lines made at random of the program's own flags and of values that nobody should give: an exit code and a sentence, never a crash."""

import re
import shutil

import pytest
from battery import Battery, run

VALUES = ["", "-1", "0", "nan", "inf", "1e999", "99999999999999999999", "-0", "0x10", " ", "\t", "a" * 5000, "--", "-", "=", "..", "/", "/dev/null", "/dev/zero",
          "/dev/full", "/dev/stdin", "gemm", "gem", "all", "adm64", "host", "7", "1/0", "0/0", "5/3", "m=1,n=1,k=1", "m=0", "m=1,n=1,k=1,k=2", ",,,", "((((", "[", "*",
          "%s%n", "\x1b[2J", "日本", b"\xff\xfe", b"\xc3\x28", "$(true)", ";", "gemm/m=1,n=1,k=1/bf16/host"]
# Those that measure or sample for long are tried with values that they refuse.
SLOW = {"sweep", "sample", "train", "forward", "tune", "ceilings"}


def commands():
    text = run("--help").stdout.decode()
    return re.findall(r"^  ([a-z][a-z-]*)", text[text.index("Subcommands:"):], re.M)


def flags_of(command):
    return re.findall(r"(--[a-z-]+)", run(command, "--help").stdout.decode())


def test_random_lines(swept, tmp_path, capsys):
    battery = Battery("random command lines")
    known = {command: flags_of(command) for command in commands()}
    assert len(known) >= 14 and all(known.values())
    while battery.time_left():
        choose = battery.random
        command = choose.choice(list(known))
        work = tmp_path / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        arguments = [command]
        for _ in range(choose.randrange(0, 5)):
            flag, value = choose.choice(known[command]), choose.choice(VALUES)
            if flag in ("--device", "--help") or (flag == "--out" and value in (".", "..", "/")):
                continue
            if isinstance(value, bytes) or choose.random() < 0.5:
                arguments += [flag, value]
            else:
                arguments.append(f"{flag}={value}")
        if choose.random() < 0.4:
            arguments.insert(1, choose.choice(VALUES))
        if command in SLOW or command == "run":
            arguments += ["--device", "seven"]  # refused, whatever else there is
        battery.judge(arguments, run(*arguments, cwd=work))
    battery.report(capsys)
    assert battery.counts["refused"] > 20


@pytest.mark.parametrize("arguments, says", [
    (["merge", "a", "--ot", "m"], "--out is required; unknown option '--ot'; did you mean '--out'?"),
    (["sweep", "--device", "host", "--budget", "nan"], "'nan' is not a finite number"),
    (["sweep", "--device", "host", "--networks", "adm64-b1", "--ops", "gemm,conv3d_temporal"], "--ops: the chosen networks have no conv3d_temporal"),
    (["sweep", "--device", "host", "--benchmark_repetition=2"], "did you mean '--benchmark_repetitions'?"),
    (["sweep", "--device", "host", "--benchmark_min_time=soon"], "Google Benchmark cannot read this value"),
    (["sample", "digits", "--device", "host", "--out", "x.png", "--plan", "twice.csv"], "line 3: gemm/m=1,n=1,k=1/bf16 is there twice"),
    (["sample", "digits", "--device", "host", "--out", "x.png", "--plan", "unknown.csv"], "line 2: unknown op 'gem'; did you mean 'gemm'?"),
    (["sample", "digits", "--device", "host", "--out", "x.png", "--plan", "/dev/zero"], "it is a device"),
    (["sample", "digits", "--device", "host", "--out", "x.png", "--weights", "/dev/zero"], "is not a regular file"),
    (["merge", "empty", "--out", "m"], "missing: 6 of the 6 cases of empty"),
    (["merge", "empty", "--out", "m", "--partial"], "no rows to merge"),
])
def test_what_makes_no_sense_is_said(arguments, says, swept, tmp_path):
    shutil.copytree(swept / "a", tmp_path / "empty")
    lines = (tmp_path / "empty" / "sweep.csv").read_text().splitlines(keepends=True)
    (tmp_path / "empty" / "sweep.csv").write_text(lines[0])
    (tmp_path / "empty" / "samples.jsonl").write_text("")
    (tmp_path / "twice.csv").write_text("op,dtype,problem,variant\n" + 'gemm,bf16,"m=1,n=1,k=1",host\n' * 2)
    (tmp_path / "unknown.csv").write_text('op,dtype,problem,variant\ngem,bf16,"m=1,n=1,k=1",host\n')
    result = run(*arguments, cwd=tmp_path)
    assert result.returncode == 2 and says in result.stderr.decode(), result.stderr.decode()
    assert not (tmp_path / "m").exists() and not (tmp_path / "x.png").exists()


def test_a_run_folder_of_any_bytes(swept, tmp_path):
    out = bytes(tmp_path) + b"/caf\xe9"
    line = ["sweep", "--device", "host", "--problems", swept / "problems", "--networks", "all", "--counters", "off", "--out", out]
    for _ in range(2):
        result = run(*line)
        assert result.returncode == 0, result.stderr
    assert run("roofline", out).returncode == 0 and run("gate", "--baseline", out, "--candidate", out).returncode == 0
