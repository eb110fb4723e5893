"""What a record that is not whole takes along, as a file of its folder: parts without a place in it yet, and what the libraries' searches found."""

import csv
import fcntl
import gzip
import io
import json
import re
import tarfile
import zlib

from record_parts import die, parts_in, read_json, say

NAME = "begun.tar.gz"
SEARCHES = ".cache/noisefloor/searches"
# Of a part. The rows are written last: a folder without them is as none.
FILES = "part.json", "shard.json", "env.json", "cases.csv", "ceilings.csv", "networks.csv", "samples.jsonl", "sweep.csv"
ORIGIN = "commit", "device", "driver"


def contents(folder, names):
    return {name: (folder / name).read_bytes() for name in names if (folder / name).is_file()}


def rows_in(files):
    """How many whole rows a part has."""
    return sum(bool(row.get("commit")) for row in csv.DictReader(io.StringIO(files.get("sweep.csv", b"").decode(errors="replace"))))


def searches_in(folder):
    """But for those that cost a process its device: on another GPU they may not."""
    found = contents(folder / SEARCHES, sorted(file.name for file in (folder / SEARCHES).glob("*.json")))
    return {name: content for name, content in found.items() if b'"lost"' not in content}


def without_machine(part, environment):
    """Not the host, and the folders that it was measured from and into."""
    turns = ["--take-turns"] * any("--take-turns" in line for line in environment.get("command_lines", []))
    return json.dumps({**environment, "host": "not recorded", "command_lines": [["noisefloor", "sweep", *part.arguments, *turns]]}).encode()


def usable(part, files, origin, cases_of):
    """`files` as they are packed; None where nothing is to be gained, or the record could not take them, which is said."""
    if not rows_in(files):
        return None
    try:
        environment, shard = json.loads(files["env.json"]), json.loads(files["shard.json"])
        if any(environment[name] != origin[name] for name in ORIGIN) or set(shard["cases"]) != set(cases_of(part)):
            say(f"{part.name} is of another build, GPU, driver or list: what there is of it is not packed")
            return None
    except (KeyError, TypeError, ValueError) as error:
        say(f"{part.name} is damaged, and not packed: {error!r}")
        return None
    return {**files, "env.json": without_machine(part, environment)}


def pack(record, parts, folders, before, cases_of):
    """Writes it into the new folder `record`, whose other files are written. Of several copies of a part the one with most rows counts; `before`: what
    read() gave of the record that this one replaces. Whether there was something."""
    whole, origin = parts_in(record), read_json(record / "env.json")
    if len(whole) == len(parts):
        return False
    packed = {}
    for part in parts:
        copies = [contents(folder / part.folder, FILES) for folder in folders] + [before.get(str(part.folder), {})]
        best = max(copies, key=rows_in)
        if part.name not in whole and (files := usable(part, best, origin, cases_of)):
            packed |= {f"{part.folder}/{name}": files[name] for name in FILES if name in files}
    searches = before.get(SEARCHES, {})
    for folder in reversed(folders):
        searches = searches | searches_in(folder)
    packed |= {f"{SEARCHES}/{name}": content for name, content in searches.items()}
    if not packed:
        return False
    with gzip.GzipFile(record / NAME, "wb", mtime=0) as stream, tarfile.open(fileobj=stream, mode="w") as tar:
        for name, content in packed.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return True


def read(record):
    """{folder: {file: content}}; nothing where there is none."""
    found = {}
    if not (record / NAME).is_file():
        return found
    try:
        with tarfile.open(record / NAME, "r:gz") as tar:
            for entry in tar:
                folder, _, name = entry.name.rpartition("/")
                known = name in FILES if re.fullmatch(r"[\w-]+/\d+-of-\d+", folder) else folder == SEARCHES and re.fullmatch(r"[\w-]+\.json", name)
                if not entry.isfile() or not known:
                    die(f"{record / NAME}: {entry.name} is no file of a part, and no search")
                found.setdefault(folder, {})[name] = tar.extractfile(entry).read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        die(f"{record / NAME}: cannot be read: {error}")
    return found


def seconds_of(files):
    """Of a part, as Part.state() has it."""
    return float(json.loads(files.get("part.json", b"{}")).get("seconds", 0))


def unpack(record, into, parts):
    """Of `parts` those that `into` has no row of, and searches that it lacks. Several processes may do this at once."""
    found = read(record)
    if not found:
        return
    (into / SEARCHES).mkdir(parents=True, exist_ok=True)
    with open(into / ".cache/begun.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name, content in found.get(SEARCHES, {}).items():
            if not (into / SEARCHES / name).exists():
                (into / SEARCHES / name).write_bytes(content)
        for part in parts:
            files = found.get(str(part.folder), {})
            if not files or (into / part.folder / "sweep.csv").is_file():
                continue
            (into / part.folder).mkdir(parents=True, exist_ok=True)
            with open(into / part.folder / ".session", "a") as session:
                try:
                    fcntl.flock(session, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue  # another process begins it
                for name in FILES:
                    if name in files:
                        (into / part.folder / name).write_bytes(files[name])
            say(f"{part.name} was begun: {record} has {rows_in(files)} rows of it")
