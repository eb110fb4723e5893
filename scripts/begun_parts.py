"""What a record that is not whole takes along: parts that were begun, and what the libraries' searches found. A file of the recorded folder."""

import fcntl
import io
import json
import lzma
import os
import tarfile
import tempfile
from pathlib import Path

from record_parts import die, parts_in, read_json, say

NAME = "begun.tar.xz"
SEARCHES = Path(".cache/noisefloor/searches")
LOCKS = ".session", ".lock"


def without_machine(part, folder):
    """env.json of a part, without the host, and the folders that it was measured from and into."""
    environment = read_json(folder / "env.json")
    turns = ["--take-turns"] * any("--take-turns" in line for line in environment.get("command_lines", []))
    return json.dumps({**environment, "host": "not recorded", "command_lines": [["noisefloor", "sweep", *part.arguments, *turns]]}).encode()


def pack(record, parts, folders):
    """Of `folders`, the first that has a part. `record` is the new folder, its parts.csv written. True where there was something."""
    whole = parts_in(record)
    begun = {part: folder / part.folder for part in parts for folder in reversed(folders)
             if part.name not in whole and (folder / part.folder / "sweep.csv").is_file() and not part.state(folder)["done"]}  # fmt: skip
    files = {SEARCHES / file.name: file.read_bytes() for folder in reversed(folders) for file in sorted((folder / SEARCHES).glob("*.json"))}
    for part, folder in begun.items():
        files |= {part.folder / file.name: file.read_bytes() for file in sorted(folder.iterdir()) if file.name not in LOCKS}
        files[part.folder / "env.json"] = without_machine(part, folder)
    if not files or len(whole) == len(parts):
        return False
    with tarfile.open(record / NAME, "w:xz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(str(name))
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return True


def read(record, into):
    """All of it, into an empty folder."""
    try:
        with tarfile.open(record / NAME) as tar:
            tar.extractall(into, filter="data")
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        die(f"{record / NAME}: cannot be read: {error}")


def unpack(record, into):
    """What `into` has no folder or file of. Several processes may do this at once."""
    if not (record / NAME).is_file():
        return
    into.mkdir(parents=True, exist_ok=True)
    place = os.open(into, os.O_RDONLY)
    fcntl.flock(place, fcntl.LOCK_EX)
    try:
        with tempfile.TemporaryDirectory(dir=into, prefix=".begun") as folder:
            read(record, folder)
            (into / SEARCHES).mkdir(parents=True, exist_ok=True)
            for found in sorted([*Path(folder).glob("*/*-of-*"), *Path(folder).glob(f"{SEARCHES}/*")]):
                to = into / found.relative_to(folder)
                if to.exists():
                    continue
                to.parent.mkdir(exist_ok=True)
                found.rename(to)
                if to.is_dir():
                    say(f"{to.parent.name}/{int(to.name.split('-')[0])} was begun: {record} has what there is of it")
    finally:
        os.close(place)
