"""Every include of C++ and CUDA, read against the table of rooms in docs/architecture.md."""

import ast
import re
from fnmatch import fnmatchcase
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = "docs/architecture.md"
TOPS = ("kernels", "baselines", "networks", "bench", "reports", "python", "tools")
SOURCES = (".h", ".cuh", ".cpp", ".cu", ".cpp.in")
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<((?:' + "|".join(TOPS) + r')/[^>]+)>)')
OP = "kernels/<op>/"


def table(text):
    """Room -> the rooms it may include, from the rows of the page's table."""
    rooms = {}
    for line in text.splitlines():
        cells = line.strip("| \n").split("|") if line.startswith("| `") else []
        allowed = re.findall("`([^`]+)`", cells[1]) if len(cells) > 1 else []
        for room in re.findall("`([^`]+)`", cells[0]) if cells else []:
            assert room not in rooms, f"{PAGE}: {room} has two rows"
            rooms[room] = allowed
    assert rooms, f"{PAGE} has no table of rooms"
    for room, allowed in rooms.items():
        for other in allowed:
            assert other in rooms, f"{PAGE}: {room} may include {other}, which has no row"
            assert other != room, f"{PAGE}: {room} names itself"
    return rooms


class House:
    def __init__(self, root):
        self.root = root
        self.rooms = table((root / PAGE).read_text())
        self.ops = {path.parent.relative_to(root).as_posix() + "/" for path in root.glob("kernels/*/variants.cpp")}

    def room(self, file):
        """The room of a file: the longest pattern that fits; None where none does."""
        fits = [room for room in self.rooms if (file.startswith(room) if room.endswith("/") else fnmatchcase(file, room))]
        return max(fits, key=len) if fits else OP if self.folder(file) in self.ops and OP in self.rooms else None

    @staticmethod
    def folder(file):
        return "/".join(file.split("/")[:2]) + "/"

    def allows(self, file, included):
        mine, other = self.room(file), self.room(included)
        if mine == other:
            return mine != OP or self.folder(file) == self.folder(included)
        return other in self.rooms[mine] or (OP in self.rooms[mine] and self.folder(included) in self.ops)

    def files(self):
        for path in sorted(path for top in TOPS for path in (self.root / top).rglob("*") if path.name.endswith(SOURCES)):
            yield path, path.relative_to(self.root).as_posix()

    def unused(self):
        """Arrows that no include takes: "A -> B". Those of a row that several rooms share are taken where one of them takes it."""
        taken = set()
        for path, file in self.files():
            for match in filter(None, map(INCLUDE.match, path.read_text().splitlines())):
                included = match[1] or match[2]
                mine, others = self.room(file), [self.room(included)]
                if self.folder(included) in self.ops:
                    others.append(OP)
                taken.update((mine, other) for other in others)
        rows = {}
        for room, allowed in self.rooms.items():
            rows.setdefault(id(allowed), (allowed, []))[1].append(room)
        for allowed, rooms in rows.values():
            for other in allowed:
                if not any((room, other) in taken for room in rooms):
                    yield f"{' '.join(rooms)} -> {other}"

    def violations(self):
        for path, file in self.files():
            if self.room(file) is None:
                yield f"{file} stands in no room of {PAGE}"
                continue
            for number, line in enumerate(path.read_text().splitlines(), 1):
                match = INCLUDE.match(line)
                included = match and (match[1] or match[2])
                if not included:
                    continue
                where = f'{file}:{number}: #include "{included}"'
                if not (self.root / included).is_file():
                    yield f"{where} is not the path of a file from the top of the repository"
                elif self.room(included) is None:
                    yield f"{where} stands in no room of {PAGE}"
                elif not self.allows(file, included):
                    allowed = " ".join(self.rooms[self.room(file)]) or "nothing else"
                    yield f"{where} breaks a rule: {self.room(file)} may include {allowed} ({PAGE})"

    def circle(self):
        """The rooms of a circle of allowed arrows, or None."""
        return circle({room: [*allowed, *(self.ops & self.rooms.keys() if OP in allowed else ())] for room, allowed in self.rooms.items()})

    def imports(self):
        """Python's modules, each with those of ours that it imports before anything is called."""
        places = {"noisefloor": self.root / "python/noisefloor", **{top: self.root / top for top in ("baselines", "reports")}}
        modules = {".".join([top, *path.relative_to(place).with_suffix("").parts]): path for top, place in places.items() for path in place.rglob("*.py")}
        return {module: [one for name in imported(path) if (one := name if name in modules else name.rpartition(".")[0]) in modules]
                for module, path in modules.items()}  # fmt: skip


def imported(path):
    """Names at a module's own level: "a.b" of `import a.b` and of `from a import b`."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{one.name}" for one in node.names)
        elif isinstance(node, ast.Import):
            yield from (one.name for one in node.names)


def circle(arrows):
    """Those of a circle of arrows, or None."""
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return error.args[1]
    return None


def test_every_include_keeps_to_the_table():
    violations = list(House(ROOT).violations())
    assert not violations, "\n" + "\n".join(violations)


def test_every_arrow_of_the_table_is_taken():
    unused = list(House(ROOT).unused())
    assert not unused, "\n" + "\n".join(unused)


def test_the_table_has_no_circle():
    circle = House(ROOT).circle()
    assert not circle, " -> ".join(circle)


def test_pythons_imports_have_no_circle():
    imports = House(ROOT).imports()
    assert "noisefloor._patch" in imports["noisefloor.torch"] and "noisefloor._core" not in imports
    found = circle(imports)
    assert not found, " -> ".join(found)


def test_rooms_of_the_table_are_there():
    missing = [room for room in House(ROOT).rooms if room != OP and not any(ROOT.glob(room.rstrip("/")))]
    assert not missing, f"{PAGE} has rows of rooms that are not there: {missing}"


def test_python_of_kernels_imports_no_other_room():
    rooms = "|".join(path.name for path in ROOT.iterdir() if path.is_dir())
    assert not [path for path in (ROOT / "kernels").rglob("*.py") if re.search(rf"^\s*(from|import) ({rooms})\b", path.read_text(), re.M)]


def test_nothing_is_loose_in_bench():
    loose = {path.name for path in (ROOT / "bench").iterdir() if path.is_file()}
    assert loose <= {"main.cpp", "CMakeLists.txt", "README.md"}, loose


def test_every_header_may_be_included_twice():
    headers = [path for top in (*TOPS, "tests") for path in (ROOT / top).rglob("*") if path.suffix in (".h", ".cuh")]
    assert headers
    assert not [str(path) for path in headers if "\n#pragma once\n" not in "\n" + path.read_text()]


# What the test itself does, on a house of a few files.
SMALL = """
| room | may include |
|---|---|
| `kernels/core/` | |
| `kernels/<op>/` | `kernels/core/` |
| `kernels/blur/` | `kernels/core/` `kernels/gemm/` |
| `kernels/gemm/` | `kernels/core/` |
| `kernels/catalogue.*` | `kernels/<op>/` |
| `reports/run/` | |
| `reports/` | `reports/run/` |
"""
FILES = {
    "kernels/core/op.h": "",
    "kernels/gemm/gemm.h": '#include "kernels/core/op.h"\n',
    "kernels/gemm/variants.cpp": '#include "kernels/gemm/gemm.h"\n',
    "kernels/norm/norm.h": "#include <vector>\n",
    "kernels/norm/variants.cpp": '#include "kernels/norm/norm.h"\n',
    "kernels/pool/variants.cpp": "",
    "kernels/blur/variants.cpp": '#include "kernels/gemm/gemm.h"\n',
    "kernels/catalogue.cpp": '#include "kernels/gemm/gemm.h"\n#include "kernels/norm/norm.h"\n',
    "reports/run/rows.h": "",
    "reports/page/run_report.cpp": '#include "reports/run/rows.h"\n',
}


def house(folder, files=(), page=SMALL):
    for name, text in {**FILES, **dict(files), PAGE: page}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return House(folder)


def test_a_sound_house_has_no_violations(tmp_path):
    assert list(house(tmp_path).violations()) == []
    assert house(tmp_path).circle() is None


@pytest.mark.parametrize(
    "file, line, says",
    [
        ("kernels/core/fields.h", '#include "kernels/gemm/gemm.h"', "kernels/core/ may include nothing else"),
        ("kernels/norm/host.cpp", '#  include "kernels/gemm/gemm.h"', "kernels/<op>/ may include kernels/core/"),
        ("kernels/pool/host.cpp", '#include "kernels/norm/norm.h"', "breaks a rule"),  # one op another
        ("kernels/core/fields.cuh", "#include <kernels/gemm/gemm.h>", "kernels/core/ may include nothing else"),
        ("reports/run/rows.cpp", '#include "reports/page/run_report.cpp"', "reports/run/ may include nothing else"),
        ("reports/gate/gate.cpp", '#include "kernels/core/op.h"', "reports/ may include reports/run/"),
        ("reports/gate/gate.cpp", '#include "gate.h"', "is not the path of a file"),
        *((file, "", f"stands in no room of {PAGE}") for file in ("kernels/loose.h", "kernels/newroom/thing.h", "bench/loose.cpp")),
    ],
)
def test_what_breaks_a_rule_is_named(tmp_path, file, line, says):
    [violation] = house(tmp_path, {file: f"// first\n{line}\n"}).violations()
    assert violation.startswith(f"{file}:2: " if line else file) and says in violation


@pytest.mark.parametrize(
    "page, circle",
    [(SMALL + "| `networks/` | `baselines/` |\n| `baselines/` | `networks/` |\n", {"networks/", "baselines/"}),
     (SMALL.replace("| `kernels/gemm/` | `kernels/core/` |", "| `kernels/gemm/` | `kernels/catalogue.*` |"), {"kernels/gemm/", "kernels/catalogue.*"}),
     (SMALL + "| `bench/` | `kernels/catalogue.*` |\n", set())],
)  # fmt: skip
def test_a_circle_of_the_table_is_found(tmp_path, page, circle):
    found = house(tmp_path, page=page).circle() or []
    assert circle <= set(found) and bool(circle) == bool(found)
