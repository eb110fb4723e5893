"""A folder with problems, a list of steps, and the parts of a record of them, as scripts/record makes it."""

import csv
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIST = """# a comment
every       -  --device host --problems problems --kinds host --pytorch off
core-gemm   2  --ops gemm --networks all
core-silu   1  --ops elementwise --networks mini
rest-silu   3  --ops elementwise --networks all --without mini
"""


# Ceilings are measured once for all of these folders.
ENVIRONMENT = {"XDG_CACHE_HOME": str(Path.home() / ".cache"), **os.environ}


class Machine:
    """A folder with problems, a list, and parts."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "problems").mkdir(parents=True)
        (folder / "list").write_text(LIST)
        (folder / "problems/gemm.csv").write_text("network,m,n,k,count\n" + "".join(f"mini,{m},16,24,1\n" for m in range(1, 6)))
        (folder / "problems/elementwise.csv").write_text("network,op,hw,channels,count\nmini,silu,16,8,1\n" + "".join(f"other,silu,{hw},8,1\n" for hw in range(20, 80)))

    def command(self, command, *more, parts=("parts",)):
        places = [word for place in parts for word in ("--parts", place)]
        return [str(word) for word in (sys.executable, ROOT / "scripts/record", command, "--list", "list", *places, *more)]

    def run(self, command, *more, parts=("parts",), env=ENVIRONMENT):
        return subprocess.run(self.command(command, *more, parts=parts), cwd=self.folder, capture_output=True, text=True, timeout=300, env=env)

    def rows(self, part, parts="parts"):
        return table(self.folder / parts / part / "sweep.csv")


def table(file):
    with open(file, newline="") as stream:
        return list(csv.DictReader(stream))


def edit(file, change):
    file.write_text(change(file.read_text()))
