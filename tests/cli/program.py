"""The program under test, and what the tests of several commands do with it."""

import csv
import ctypes
import json
import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support.machine import ROOT, executable

WEIGHTS = ROOT / "bench" / "pipeline" / "weights" / "digits.safetensors"
PROGRAM = os.environ.get("NOISEFLOOR_BINARY", "")
needs_program = pytest.mark.skipif(not Path(PROGRAM).is_file(), reason="NOISEFLOOR_BINARY names no program")


def has_libpython():
    name = sysconfig.get_config_var("INSTSONAME") or ""
    for file in (f"libpython{sysconfig.get_python_version()}.so.1.0", os.path.join(sysconfig.get_config_var("LIBDIR") or "", name)):
        try:
            return bool(ctypes.PyDLL(file))
        except OSError:
            pass
    return False


needs_libpython = pytest.mark.skipif(not has_libpython(), reason="this Python has no shared library: it cannot become noisefloor's process")

SMALL = "network,m,n,k,count\nmini,8,16,24,3\nmini,16,16,8,1\nother,4,8,8,1\n"  # a problem file of gemm


def stub_build(folder, program="noisefloor", **script):
    """A build with scripted times (stub_build.py): a folder with bin/noisefloor, or with a Python that `ab --python` starts."""
    words = map(shlex.quote, (sys.executable, str(Path(__file__).with_name("stub_build.py")), json.dumps({"us": 10.0, **script})))
    asked = '"$@"' if program == "noisefloor" else "worker"
    executable(folder / "bin" / program, f"#!/bin/sh\nexec {' '.join(words)} {asked}\n")
    return folder


def run(*arguments, **kwargs):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=500, **kwargs)


def sweep(problems, out, *more, **kwargs):
    return run("sweep", "--device", "host", "--problems", problems, "--networks", "all", "--out", out, *more, **kwargs)


def strict(text):
    """JSON as it is defined: NaN and Infinity are not numbers there."""
    def refuse(name):
        raise AssertionError(f"{name} in JSON")
    return json.loads(text, parse_constant=refuse)


def read_table(file):
    with open(file, newline="") as stream:
        return list(csv.DictReader(stream))


def rows(folder):
    return read_table(folder / "sweep.csv")


def write_rows(folder, table):
    with open(folder / "sweep.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, table[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)


def edit_json(file, **values):
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def timeline(file):
    """Slices by track and counters, as the Trace Event Format has them."""
    events = strict(file.read_text())["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    tracks = {name: [event for event in events if event["ph"] == "X" and event["tid"] == track] for track, name in names.items()}
    for slices in tracks.values():
        assert all(before["ts"] + before["dur"] <= after["ts"] + 1e-6 for before, after in zip(slices, slices[1:])), "slices of one track do not overlap"
    return tracks, [event["args"] for event in events if event["ph"] == "C"]


def below(runs, problems, *more, **kwargs):
    """A sweep that makes its folder below `runs`."""
    return run("sweep", "--device", "host", "--problems", problems, "--networks", "all", "--runs", runs, *more, **kwargs)
