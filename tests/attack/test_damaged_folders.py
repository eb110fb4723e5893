"""Run folders damaged at random and on purpose, under every command that reads them: read or refused in a sentence, in bounded time and memory."""

import gzip
import json
import os
import shutil

import pytest
from battery import Battery, run, sweep_arguments
from tests.cli.gated_runs import pack
from tests.cli.program import edit_json, rows, write_rows

FILES = ["sweep.csv", "samples.jsonl", "env.json", "ceilings.csv", "networks.csv", "cases.csv"]
HOSTILE = [b"nan", b"inf", b"-1", b"1e308", b"1e999", b"0", b"", b"\x00", b"\xff\xfe", b"\x1b[2J", b'"', b",", b"[" * 1000, b"9" * 400, b"../../etc"]


def readers(folder, swept, out):
    """Each command that reads a run, with this one in it."""
    return {
        "roofline": ["roofline", folder],
        "explain": ["explain", "/".join(rows(swept / "a")[0][part] for part in ("op", "problem", "dtype", "variant")), "--run", folder],
        "gate, as candidate": ["gate", "--baseline", swept / "a", "--candidate", folder],
        "gate, as baseline": ["gate", "--baseline", folder, "--candidate", swept / "a"],
        "compare": ["compare", folder, swept / "b"],
        "history": ["history", folder, swept / "b", "--case", "."],
        "merge": ["merge", folder, "--out", out / "merged"],
        "accept": ["gate", "accept", "--baseline", out / "new", "--candidate", folder],
    }


def damage(battery, file):
    """One small change; says what it was."""
    text, choose = file.read_bytes(), battery.random
    at = choose.randrange(len(text) + 1)
    end, lines, fields = min(len(text), at + choose.randrange(1, 60)), text.splitlines(keepends=True), text.split(b",")

    def number():
        fields[choose.randrange(len(fields))] = choose.choice(HOSTILE)
        return b",".join(fields)

    kinds = {
        "flip": lambda: text[:at] + bytes([one ^ 1 << choose.randrange(8) for one in text[at : at + 1]]) + text[at + 1 :],
        "cut": lambda: text[:at], "remove": lambda: text[:at] + text[end:], "double": lambda: text[:end] + text[at:],
        "insert": lambda: text[:at] + choose.choice(HOSTILE) + text[at:], "number": number, "empty": lambda: b"",
        "line twice": lambda: b"".join(sorted([*lines, choose.choice(lines)], key=lines.index)),
        "shuffle": lambda: b"".join(choose.sample(lines, len(lines))),
    }
    kind = choose.choice(list(kinds))
    file.write_bytes(kinds[kind]())
    return f"{file.name}: {kind} at {at}"


def test_random_damage(swept, tmp_path, capsys):
    battery = Battery("damaged folders")
    while battery.time_left():
        folder, out = tmp_path / "run", tmp_path / "out"
        for path in (folder, out):
            shutil.rmtree(path, ignore_errors=True)
        out.mkdir()
        shutil.copytree(swept / "a", folder)
        what = damage(battery, folder / battery.random.choice(FILES))
        name, arguments = battery.random.choice(list(readers(folder, swept, out).items()))
        before = (folder / "sweep.csv").read_bytes()
        battery.judge(f"{what}, under {name}", run(*arguments))
        assert (folder / "sweep.csv").read_bytes() == before, f"{name} changed the run that it reads"
        assert not list(tmp_path.glob("**/*.partial")), what
    battery.report(capsys)
    assert battery.counts["refused"] > 10


def replace_column(name, text):
    def change(folder):
        table = rows(folder)
        table[0][name] = text
        write_rows(folder, table)
    return change


def twice(name, line):
    def change(folder):
        lines = (folder / name).read_text().splitlines(keepends=True)
        (folder / name).write_text("".join(lines + [lines[line]]))
    return change


def special(name, make):
    def change(folder):
        (folder / name).unlink()
        make(folder / name)
    return change


def json_field(name, value):
    return lambda folder: edit_json(folder / "env.json", **{name: value})


def endless(file):
    with open(file, "wb") as stream:
        stream.truncate(1 << 41)


ALL = {"roofline", "explain", "gate, as candidate", "gate, as baseline", "compare", "history", "merge", "accept"}
# What is wrong: how it is made, and the commands that must refuse it.
WRONG = {
    "a time of 1e308": (replace_column("time_cold_us", "1e308"), ALL),
    "half a slot": (replace_column("buffer_slots", "0.5"), ALL),
    "a doubled row": (twice("sweep.csv", 2), ALL),
    "doubled samples": (twice("samples.jsonl", 0), ALL),
    "packed samples without their end": (lambda folder: pack(folder / "samples.jsonl", less=20), ALL),
    "samples packed and not": (lambda folder: (folder / "samples.jsonl.gz").write_bytes(gzip.compress((folder / "samples.jsonl").read_bytes())), ALL),
    "a doubled line of networks.csv": (twice("networks.csv", 1), {"roofline", "history"}),
    "another device in env.json": (json_field("device", "Another CPU"), ALL),
    "a number as env.json": (lambda folder: (folder / "env.json").write_text("5"), ALL),
    "brackets as env.json": (lambda folder: (folder / "env.json").write_bytes(b"[" * (100 << 20)), ALL),
    "deep nesting in env.json": (json_field("x", json.loads("[" * 200 + "]" * 200)), ALL),
    **{f"a pipe as {name}": (special(name, os.mkfifo), ALL) for name in ("sweep.csv", "samples.jsonl", "env.json")},
    **{f"a link to /dev/zero as {name}": (special(name, lambda file: os.symlink("/dev/zero", file)), ALL) for name in ("sweep.csv", "samples.jsonl", "env.json")},
    **{f"a folder as {name}": (special(name, os.mkdir), ALL) for name in ("sweep.csv", "samples.jsonl", "env.json")},
    **{f"2 TB as {name}": (special(name, endless), ALL) for name in ("sweep.csv", "samples.jsonl", "env.json")},
    "a pipe as cases.csv": (special("cases.csv", os.mkfifo), {"roofline", "merge"}),
    "a pipe as ceilings.csv": (special("ceilings.csv", os.mkfifo), {"roofline", "explain", "merge"}),
    "a pipe as networks.csv": (special("networks.csv", os.mkfifo), {"roofline", "history", "merge"}),
    "a pipe as shard.json": (lambda folder: os.mkfifo(folder / "shard.json"), {"merge"}),
    "a pipe as .lock": (special(".lock", os.mkfifo), set()),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_refused(what, swept, tmp_path, capsys):
    change, refusing = WRONG[what]
    battery = Battery(what)
    folder = tmp_path / "run"
    shutil.copytree(swept / "a", folder)
    change(folder)
    for name, arguments in readers(folder, swept, tmp_path).items():
        battery.judge(f"{what}, under {name}", run(*arguments), (2,) if name in refusing else (0, 1, 2))
    if what != "a pipe as .lock":
        return
    battery.judge("a pipe as .lock, under sweep", run(*sweep_arguments(swept, folder)), (2,))
