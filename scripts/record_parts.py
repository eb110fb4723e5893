"""The parts of a record: what the list says of them, and how far each has come."""

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = os.environ.get("NOISEFLOOR_BINARY") or ROOT / "scripts/noisefloor"


def say(text):
    sys.stderr.write(f"record: {text}\n")  # at once: several processes write there
    sys.stderr.flush()


def die(text):
    say(f"error: {text}")
    sys.exit(2)


def read_json(file):
    try:
        value = json.loads(file.read_text())
    except ValueError as error:
        die(f"{file}: cannot be read: {error}")
    return value if isinstance(value, dict) else die(f"{file}: is not a JSON object")


class Part:
    def __init__(self, step, index, count, arguments):
        self.step, self.index, self.count, self.arguments = step, index, count, arguments
        self.name = f"{step}/{index}"
        self.names = {step.split("-")[0], step, self.name}
        self.folder = Path(step) / f"{index:02}-of-{count:02}"
        self.sweep = [PROGRAM, "sweep", *arguments, "--shard", f"{index}/{count}"]

    def state(self, parts):
        """Of its folder below `parts`: whether it is begun and done, and how long it took."""
        file = parts / self.folder / "part.json"
        state = {"begun": file.parent.is_dir(), "done": False, "seconds": 0, **(read_json(file) if file.is_file() else {})}
        if not isinstance(state["done"], bool) or not isinstance(state["seconds"], (int, float)) or not 0 <= state["seconds"] < 1e9:
            die(f"{file}: needs done, true or false, and seconds from 0")
        return state


def parts_in(record):
    """Names of the parts that a recorded folder has, and the lines of its parts.csv."""
    with open(record / "parts.csv", newline="") as stream:
        return {f"{row['step']}/{row['part']}": row for row in csv.DictReader(stream) if row["seconds"]}


def rows_of(folder):
    file = folder / "sweep.csv"
    if not file.is_file():
        return []
    with open(file, newline="") as stream:
        return [row for row in csv.DictReader(stream) if row.get("commit")]  # but for a torn last line


def case_names(rows):
    return {"/".join((row["op"], row["problem"], row["dtype"], row["variant"])) for row in rows}


def lines_of(file):
    """(number, words) of each step, with the ops' names in place of `others`."""
    lines = [(number, line.split()) for number, line in enumerate(file.read_text().splitlines(), 1) if line.strip() and not line.startswith("#")]
    named = {op for _, words in lines for before, text in zip(words, words[1:]) if before == "--ops" for op in text.split(",")}
    if "others" in named:
        listed = subprocess.run([PROGRAM, "list", "ops", "--format", "json"], capture_output=True, text=True)
        if listed.returncode != 0:
            die(f"{PROGRAM} lists no ops: {listed.stderr.strip()}")
        others = [op for op in (json.loads(line)["op"] for line in listed.stdout.splitlines()) if op not in named]
        if not others:
            die(f"{file}: there are no others: its steps name every op")
        spliced = lambda text: ",".join(one for op in text.split(",") for one in (others if op == "others" else [op]))  # noqa: E731
        lines = [(number, [spliced(word) if before == "--ops" else word for before, word in zip(["", *words], words)]) for number, words in lines]
    return lines


def parts_of(file, only):
    every, parts = [], []
    for number, words in lines_of(file):
        if words[0] == "every":
            every = words[2:]
        elif len(words) < 3 or not re.fullmatch("[0-9]{1,4}", words[1]) or int(words[1]) < 1:
            die(f"{file}:{number}: needs a step's name, a number of parts from 1 to 9999, and arguments")
        elif any(part.step == words[0] for part in parts):
            die(f"{file}:{number}: step {words[0]} is there twice")
        else:
            parts += [Part(words[0], index, int(words[1]), [*every, *words[2:]]) for index in range(1, int(words[1]) + 1)]
    names = set(only.split(",")) if only else set()
    unknown = names - {name for part in parts for name in part.names}
    if unknown:
        die(f"--only: unknown '{min(unknown)}'; the steps are {', '.join(dict.fromkeys(part.step for part in parts))}")
    return [part for part in parts if not names or names & part.names]
