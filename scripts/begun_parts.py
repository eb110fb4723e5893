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
LIBRARIES = "cublaslt", "cudnn", "pytorch", "pytorch_cuda", "pytorch_cudnn", "triton"  # another one's rows a sweep refuses to go on with


def known(name):
    """Whether a file may be in an archive."""
    folder, _, file = name.rpartition("/")
    return (file in FILES and re.fullmatch(r"[\w.-]+/\d+-of-\d+", folder)) or (folder == SEARCHES and re.fullmatch(r"[\w.-]+\.json", file))


def contents(folder, names):
    return {name: (folder / name).read_bytes() for name in names if (folder / name).is_file()}


def rows_in(files):
    """How many whole rows a part has."""
    return sum(bool(row.get("commit")) for row in csv.DictReader(io.StringIO(files.get("sweep.csv", b"").decode(errors="replace"))))


def searches_in(folder):
    return contents(folder / SEARCHES, sorted(file.name for file in (folder / SEARCHES).glob("[!.]*.json")))


def without_machine(part, environment):
    """Not the host, and the folders that it was measured from and into."""
    return json.dumps({**environment, "host": "not recorded", "command_lines": [["noisefloor", "sweep", *part.arguments]]}).encode()


def misfit(files, origin, cases):
    """Why a part's files cannot be the record's, or nothing."""
    environment, shard, state = (json.loads(files[name]) for name in ("env.json", "shard.json", "part.json"))
    other = [name for name in ORIGIN if environment[name] != origin[name]]
    other += [name for name in LIBRARIES if name in environment and environment[name] != origin.get(name, environment[name])]
    other += ["list"] * (set(shard["cases"]) != cases) + ["state"] * (not isinstance(state["seconds"], (int, float)))
    return f"of another {other[0]}" if other else ""


def usable(part, copies, origin, cases_of):
    """The longest copy that the record could go on with; what is left out is said."""
    good = []
    cases = set(cases_of(part)) if any(map(rows_in, copies)) else set()
    for files in filter(rows_in, copies):
        try:
            why = misfit({"part.json": b'{"seconds": 0}', **files}, origin, cases)
        except (KeyError, TypeError, ValueError) as error:
            why = f"damaged: {error!r}"
        if why:
            say(f"{part.name}: {rows_in(files)} rows are not packed, they are {why}")
        else:
            good.append({**files, "env.json": without_machine(part, json.loads(files["env.json"]))})
    return max(good, key=rows_in, default={})


def pack(record, parts, folders, before, cases_of):
    """Writes it into the new folder `record`, whose other files are written. `before`: what read() gave of the record that this one replaces. Whether
    there was something."""
    whole, origin = parts_in(record), read_json(record / "env.json")
    if len(whole) == len(parts):
        return False
    packed = {}
    for part in (part for part in parts if part.name not in whole):
        files = usable(part, [*(contents(folder / part.folder, FILES) for folder in folders), before.get(str(part.folder), {})], origin, cases_of)
        packed |= {f"{part.folder}/{name}": files[name] for name in FILES if name in files}
    searches = [before.get(SEARCHES, {}), *(searches_in(folder) for folder in reversed(folders))]
    lost = {name for found in searches for name, content in found.items() if b'"lost"' in content}  # one that cost a process its device, by any
    packed |= {f"{SEARCHES}/{name}": content for found in searches for name, content in found.items() if name not in lost}
    packed = {name: content for name, content in packed.items() if known(name)}
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
                if not entry.isfile() or not known(entry.name):
                    die(f"{record / NAME}: {entry.name} is no file of a part, and no search; remove the archive to go on without it")
                found.setdefault(folder, {})[name] = tar.extractfile(entry).read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        die(f"{record / NAME}: cannot be read: {error}; remove it to go on without it")
    return found


def unpack(record, into, parts, cases_of):
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
            if not files or rows_in(contents(into / part.folder, FILES)):
                continue
            if set(json.loads(files["shard.json"])["cases"]) != set(cases_of(part)):
                say(f"{part.name}: what {record} has of it is of another list")
                continue
            (into / part.folder).mkdir(parents=True, exist_ok=True)
            with open(into / part.folder / ".session", "a") as session:
                try:
                    fcntl.flock(session, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue  # another process begins it
                for name in FILES:
                    if name in files:
                        (into / part.folder / f"{name}.new").write_bytes(files[name])
                        (into / part.folder / f"{name}.new").rename(into / part.folder / name)
            say(f"{part.name} was begun: {record} has {rows_in(files)} rows of it; on another GPU half-done problems are measured anew")
