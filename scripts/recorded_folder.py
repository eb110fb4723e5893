"""`scripts/record finish`: a recorded folder out of the parts that are done."""

import csv
import fcntl
import gzip
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

import begun_parts
from record_parts import PROGRAM, ROOT, case_names, die, parts_in, parts_of, read_json, rows_of, say

PYTHON = next((python for python in [ROOT / ".venv/bin/python3"] if python.exists()), sys.executable)  # with what the plots need
KEPT = ("kernels.csv",)  # of the folder that is replaced: `noisefloor resources` writes it
KERNELS = " `kernels.csv` is of today's kernels, as `.ci/run` builds them: registers, shared memory, stack."
BEGUN = " `begun.tar.gz` has what there is of other parts, and the libraries' searches: `scripts/record part --record` goes on with them."
README = """# Recorded on {device}

Made by `scripts/record` of one build; [scripts/record.txt](../../../scripts/record.txt) says what it has. All rows of a problem are of one GPU,
which column `gpu_uuid` names.{kernels}{begun}

<!-- generated: rows -->
<!-- end -->

<!-- generated: parts -->
<!-- end -->
"""


def cases_of(part):
    where = [] if "--device" in part.arguments else ["--device", "host"]  # the problems are the same
    listed = subprocess.run([*part.sweep, *where, "--benchmark_list_tests"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if listed.returncode != 0:
        die(f"the cases of {part.name} cannot be listed: {listed.stderr.strip()}")
    return listed.stdout.split()


def run(what, command, ends=(0,), **more):
    say(what)
    code = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **more).returncode
    if code not in ends:
        die(f"{what}: exit code {code}")
    return code


def without_machines(folder, found, before, ceilings):
    """env.json says what was measured, not on which hosts and in which folders. `before`: that of the record whose parts stay, or {}."""
    environment = read_json(folder / "env.json")
    names = before.get("merged_from", [])
    for name in {**before.get("of_parts", {}), **environment.get("of_parts", {})}:  # a value for each part, in the order of merged_from
        values = before.get("of_parts", {}).get(name, [before.get(name)] * len(names)) + [read_json(place / "env.json").get(name) for place in found.values()]
        environment.setdefault("of_parts", {})[name] = values
        environment.pop(name, None)
    environment.setdefault("of_parts", {})["ceilings"] = ceilings
    lines = [tuple(line[2:]) for line in before.get("command_lines", [])]
    lines += [tuple(part.arguments) for part in found]
    environment["merged_from"] = names + [part.name for part in found]
    environment["command_lines"] = [["noisefloor", "sweep", *arguments] for arguments in dict.fromkeys(lines)]
    environment.pop("hosts", None)
    environment["host"] = "not recorded"
    (folder / "env.json").write_text(json.dumps(environment, indent=2) + "\n")


def record_to_keep(out, found):
    """`out` where it is a record of the same GPU model, driver and commit, so that its other parts stay; else None."""
    if not (out / "parts.csv").is_file() or not (out / "env.json").is_file():
        return None
    there, new = read_json(out / "env.json"), read_json(next(iter(found.values())) / "env.json")
    if any(there.get(name) != new.get(name) for name in ("device", "driver", "commit")) or not set(parts_in(out)) - {part.name for part in found}:
        return None
    for part in [part for part in found if part.name in parts_in(out)]:
        say(f"{part.name}: {out} has it already, and keeps it")
        del found[part]
    return out


def check_place(out, is_the_record, arguments, found, kept):
    """What is there goes, but for a record that is kept: it must be a record, and not have parts that this one lacks."""
    if any(out == folder or folder in out.parents or out in folder.parents for folder in (one.resolve() for one in arguments.every)):
        die(f"{out}: is among the parts; give another --out")
    if not out.exists():
        return
    if not (is_the_record or (out / "parts.csv").is_file()) or any(entry.is_dir() for entry in out.iterdir()):
        die(f"{out} is there, and not a recorded folder; give another --out")
    if not kept and (out / "parts.csv").is_file():
        if lost := set(parts_in(out)) - {part.name for part in found}:
            die(f"{out} is of another build and has {min(lost)} and {len(lost) - 1} more parts that are not among these; give another --out")


def ceilings_in(folder):
    """Value and SM clock of each; a clock that is not known is 0."""
    with open(folder / "ceilings.csv", newline="") as stream:
        return {row["name"]: [float(row["value"]), float(row["sm_clock_mhz"] or 0)] for row in csv.DictReader(stream)}


def take_medians(file, of_parts):
    """As `noisefloor merge` does, of every part: merging a record with parts would count all of the record as one."""
    with open(file, newline="") as stream:
        table = csv.DictReader(stream)
        columns, rows = table.fieldnames, list(table)
    for row in rows:
        for column, numbers in zip(("value", "sm_clock_mhz"), zip(*(part[row["name"]] for part in of_parts if row["name"] in part))):
            if known := [number for number in numbers if number > 0]:
                row[column] = f"{statistics.median(known):.6g}"
    with open(file, "w", newline="") as stream:
        out = csv.DictWriter(stream, columns, lineterminator="\n")
        out.writeheader()
        out.writerows(rows)


def merge(made, found, kept):
    """Rows, samples and the rest of the parts, behind those of the record that is kept."""
    merging = [PROGRAM, "merge", "--partial", "--out"]
    worst = run("merging", [*merging, made, *found.values()], (0, 1))
    if kept:
        new = made.rename(made.with_name(f"{made.name}.parts"))
        try:
            worst = run("adding them to the record", [*merging, made, kept, new], (0, 1))
        finally:
            shutil.rmtree(new, ignore_errors=True)
    (made / "cases.csv").unlink()
    before = read_json(kept / "env.json") if kept else {}
    of_parts = [ceilings_in(folder) for folder in found.values()]
    if kept:  # one without its parts' ceilings counts as so many parts of its own
        of_parts = before.get("of_parts", {}).get("ceilings", [ceilings_in(kept)] * len(before["merged_from"])) + of_parts
        take_medians(made / "ceilings.csv", of_parts)
    without_machines(made, found, before, of_parts)
    return worst


def write_parts(made, found, parts, cases, kept):
    """parts.csv: 1 where a problem or a case of the list has no row, else 0."""
    worst, present = 0, case_names(rows_of(made))
    with_rows = {name.rsplit("/", 1)[0] for name in present}
    with open(made / "parts.csv", "w", newline="") as stream:
        table = csv.DictWriter(stream, ["step", "part", "of", "problems", "rows", "seconds", "gpu_uuid"], lineterminator="\n")
        table.writeheader()
        for part in parts:
            rows, problems = rows_of(found[part]) if part in found else [], list(dict.fromkeys(name.rsplit("/", 1)[0] for name in cases[part]))
            seconds = part.state(found[part].parents[1])["seconds"] if part in found else ""
            table.writerow(kept.get(part.name) or {
                "step": part.step, "part": part.index, "of": part.count, "problems": len(problems), "rows": len(rows), "seconds": seconds,
                "gpu_uuid": ";".join(sorted({row["gpu_uuid"] for row in rows} - {""}))})
            lacking = [name for name in problems if name not in with_rows]
            lacking += [name for name in cases[part] if name not in present and name.rsplit("/", 1)[0] in with_rows]
            for name in lacking:
                worst = 1
                print(f"missing: {part.name}: {name}")
    return worst


def pack(file):
    """FILE.gz in its place, a quarter of it; the same bytes whenever it is made."""
    with open(file, "rb") as plain, gzip.GzipFile(file.with_name(f"{file.name}.gz"), "wb", mtime=0) as packed:
        shutil.copyfileobj(plain, packed)
    file.unlink()


def make(made, out, found, parts, cases, arguments, device, kept, begun):
    """All files of the record, in `made`, but what of `out` is kept: 1 where a row is wrong or a problem missing, else 0."""
    reports = ROOT / "reports"
    made.parent.mkdir(parents=True, exist_ok=True)
    worst = merge(made, found, kept)
    worst = max(worst, write_parts(made, found, parts, cases, parts_in(kept) if kept else {}))
    run("placing the rows on the roofline", [PROGRAM, "roofline", made])
    (made / "roofline.csv").unlink()  # nothing reads it, and `noisefloor roofline` makes it again of what is here
    run("drawing the roofline", [PYTHON, reports / "plots" / "plot_roofline.py", made])
    if any((row["op"], row["dtype"], row["status"]) == ("network", "bf16", "ok") and row["variant"] != "torch_eager" for row in rows_of(made)):
        run("drawing the overview", [PYTHON, reports / "plots" / "plot_overview.py", made])
    if shutil.which("chromium"):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:  # of its own: several may draw at once
            run("drawing the report", ["chromium", "--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1200,1137", f"--user-data-dir={profile}",
                                       f"--screenshot={made / 'report.png'}", (made / "report.html").resolve().as_uri()], stderr=subprocess.DEVNULL)
    (made / "report.html").unlink()
    kernels = KERNELS if (out / "kernels.csv").is_file() else ""
    packed = begun_parts.pack(made, parts_of(arguments.list, ""), arguments.every, begun, cases_of)
    (made / "README.md").write_text(README.format(device=f"{device}s" if device.startswith("NVIDIA") else device, kernels=kernels, begun=BEGUN if packed else ""))
    run("writing its README", [PYTHON, reports / "docs" / "write_docs.py", made / "README.md"])
    for kept in KEPT:
        if (out / kept).is_file():
            shutil.copy(out / kept, made)
    pack(made / "samples.jsonl")
    return worst


def finish(arguments, parts):
    reports = ROOT / "reports"
    if not (reports / "docs" / "write_docs.py").is_file():
        die("finish needs a checkout; carry the parts there")
    found = {}
    for part in parts:
        done = [folder / part.folder for folder in arguments.every if part.state(folder)["done"]]
        if done:
            found[part] = done[0]
    if not found:
        die("no part is done; what was begun stays in --parts")
    device = read_json(next(iter(found.values())) / "env.json")["device"]
    recorded = reports / "recorded" / re.sub("[^a-z0-9]+", "-", device.lower()).strip("-")
    out = arguments.out or recorded
    if out.is_symlink():
        die(f"{out} is a link; name the folder that it leads to")
    out = out.resolve()
    out.parent.mkdir(parents=True, exist_ok=True)
    place = os.open(out.parent, os.O_RDONLY)  # which holds the lock as long as this process lives
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        die(f"another record is being finished in {out.parent}")
    made, old = (out.with_name(f".{out.name}.{what}") for what in ("new", "old"))
    if old.is_dir() and not out.exists():
        say(f"{out}: an earlier finish was cut short; what it was to replace is back")
        old.rename(out)
    for left in (made, old):
        shutil.rmtree(left, ignore_errors=True)
    kept = record_to_keep(out, found)
    if not found:
        die(f"{out} has all of these parts already; what was begun stays in --parts")
    check_place(out, out == recorded.resolve(), arguments, found, kept)
    begun = begun_parts.read(out)
    parts = parts_of(arguments.list, "") if kept else parts
    cases = {part: cases_of(part) for part in parts}
    found = {part: found[one] for part in parts for one in found if one.name == part.name}
    for name, line in (parts_in(kept) if kept else {}).items():
        problems = [len({case.rsplit("/", 1)[0] for case in of_part}) for part, of_part in cases.items() if part.name == name]
        if problems != [int(line["problems"])]:
            die(f"{out} has {name}, which this list {'has with other problems' if problems else 'lacks'}; give another --out")
    for part, folder in found.items():
        if set(read_json(folder / "shard.json")["cases"]) != set(cases[part]):
            die(f"{part.name} was measured by another list: its cases are others; measure it into another --parts")
    try:
        worst = make(made, out, found, parts, cases, arguments, device, kept, begun)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    if out.exists():
        out.rename(old)
    made.rename(out)
    shutil.rmtree(old, ignore_errors=True)
    if out == recorded.resolve():
        run("writing the documentation", [PYTHON, reports / "docs" / "write_docs.py"])
    say(f"{out}: {len(parts_in(out))} of {len(parts_of(arguments.list, ''))} parts")
    return worst
