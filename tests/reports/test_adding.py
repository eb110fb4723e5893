"""Follows the worked examples of docs/adding.md, in one build: their files lie over the tree's, what they touch is compiled, and the program
with them is linked and asked. A column is in every row, so what reads and writes rows is compiled with it as a program of its own."""

import csv
import json
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cli.program import PROGRAM, needs_program

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(PROGRAM).parent.parent
EXAMPLE = re.compile(r"<!-- example: (\w+), (new|in) ([^\s,]+)(?:, (after|before): (.*?))? -->\n```\w*\n(.*?)```", re.S)
OF_ROWS = ["reports/page/column_json.cpp", *(f"reports/run/{name}.cpp" for name in ("case_id", "columns", "csv", "files", "statistics", "sweep_csv"))]
DRIVER = """
#include <fstream>
#include <iostream>
#include "reports/page/run_report.h"
#include "reports/run/columns.h"
using namespace noisefloor;
int main(int, char** arguments) {
  SweepRow row;
  row.op = "gemm";
  row.board_watts = 412.5;
  std::ofstream(arguments[1]) << sweep_csv_header() << to_csv(row);
  nlohmann::json counters;
  for (const auto& [name, value] : counters_of(row)) counters[name] = value;
  const std::string docs = columns_markdown([](const auto&) { return true; });
  std::cout << nlohmann::json{{"counters", counters}, {"report", rows_json(read_sweep_csv(arguments[1]))}, {"docs", docs}};
}
"""

pytestmark = needs_program


def lay_over(folder):
    """Writes the examples' files below `folder`; gives their texts by kind and path."""
    files, kinds = {}, {}
    for kind, how, path, place, anchor, text in EXAMPLE.findall((ROOT / "docs" / "adding.md").read_text()):
        kinds.setdefault(kind, set()).add(path)
        if how == "new":
            assert not (ROOT / path).exists(), f"{path} is there: choose another example"
            files[path] = text
            continue
        lines = (files.get(path) or (ROOT / path).read_text()).splitlines(keepends=True)
        at = [number for number, line in enumerate(lines) if line.startswith(anchor)]
        assert len(at) == 1, f"{path}: {len(at)} lines begin with '{anchor}'"
        lines.insert(at[0] + (place == "after"), text)
        files[path] = "".join(lines)
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return kinds


def command_of(target):
    said = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", target], capture_output=True, text=True, timeout=60)
    assert said.returncode == 0, said.stdout + said.stderr
    return said.stdout.strip().split("\n")[-1]


def compile_as(like, source, folder):
    """Compiles `source` with the flags of the object of `like` (a path in the tree), headers of `folder` first."""
    room, inside = like.split("/", 1)
    objects = [line.split(": ")[0] for line in targets() if re.fullmatch(rf"{room}/CMakeFiles/\w+\.dir/{re.escape(inside)}\.o: .*", line)]
    assert len(objects) == 1, f"{like}: objects {objects}"
    made = folder / ("_".join(source.parts[-3:]) + ".o")
    command = command_of(objects[0])
    flags = re.sub(r" -MD -MT \S+ -MF \S+", "", command[: command.index(" -o ")])
    shell(f"{flags.replace(' -I', f' -I{folder} -I', 1)} -o {made} -c {source}")
    return made


def targets():
    return subprocess.run(["ninja", "-C", BUILD, "-t", "targets", "all"], capture_output=True, text=True, timeout=60).stdout.split("\n")


def shell(command):
    result = subprocess.run(command, shell=True, cwd=BUILD, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(folder, kind -> its files, program, program of rows)"""
    folder = tmp_path_factory.mktemp("examples")
    kinds = lay_over(folder)
    (folder / "rows.cpp").write_text("".join(f'#include "{ROOT / path}"\n' for path in OF_ROWS) + DRIVER)  # as one: most of it is headers
    kernels = [path for path in kinds["variant"] | kinds["op"] if path.endswith(".cpp")]
    of_kernels = [(path if (ROOT / path).exists() else "kernels/catalogue.cpp", folder / path) for path in sorted(kernels)]
    assert len(of_kernels) <= 8, "few files are compiled anew"
    with ThreadPoolExecutor(2) as pool:
        rows = pool.submit(compile_as, "bench/main.cpp", folder / "rows.cpp", folder)
        objects = " ".join(str(one) for one in pool.map(lambda pair: compile_as(*pair, folder), of_kernels))
    link = command_of("bin/noisefloor")
    shell(re.sub(r" (\S*main\.cpp\.o) -o bin/\S+", rf" \1 {objects} -o {folder / 'noisefloor'}", link).split(" && ", 1)[1].rsplit(" && ", 1)[0])
    shell(f"{re.search(r'&& (/?[^ ]*)', link)[1]} {rows.result()} -lfmt -o {folder / 'rows'}")
    return folder, kinds, folder / "noisefloor", folder / "rows"


def test_few_files_are_touched(made):
    _, kinds, _, _ = made
    assert len(kinds["variant"]) == 2 and len(kinds["column"]) == 1
    outside = {path for path in kinds["op"] if not path.startswith("kernels/rmsnorm/")}
    assert len(outside - {"bench/problems/rmsnorm.csv"}) == 3, outside


def test_a_variant_and_an_op_are_measured(made):
    folder, _, program, _ = made

    result = subprocess.run([program, "run", "layernorm", "--problem", "rows=33,channels=40,images=3,fusion=scale_shift,residual=1", "--variant",
                             "host_plain", "--device", "host"], capture_output=True, text=True, timeout=120)  # fmt: skip
    assert re.search(r"host_plain .*\b(ok|throttled)\b", result.stdout), result.stdout + result.stderr  # loaded, a right row has no time
    result = subprocess.run([program, "sweep", "--ops", "rmsnorm", "--problems", folder / "tests/problems", "--networks", "tiny,ragged,real", "--dtypes",
                             "bf16,fp32", "--device", "host", "--out", folder / "run", "--benchmark_min_time=0.001"],
                            capture_output=True, text=True, timeout=120)  # fmt: skip
    assert result.returncode == 0, result.stderr
    with open(folder / "run" / "sweep.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["variant"] == "host"]
    with open(folder / "tests/problems/rmsnorm.csv", newline="") as file:
        assert len(rows) == 2 * len(list(csv.DictReader(file)))
    assert {row["status"] for row in rows} <= {"ok", "throttled"}, rows
    listed = subprocess.run([program, "list", "variants", "--filter", "^rmsnorm/"], capture_output=True, text=True, timeout=60).stdout
    assert "ptx_sm90a" in listed and "an example of docs/adding.md" in listed


def test_a_column_is_one_line(made):
    folder, _, _, program = made
    ran = subprocess.run([program, folder / "sweep.csv"], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    data = json.loads(ran.stdout)
    header, row = (folder / "sweep.csv").read_text().splitlines()
    assert header.split(",")[-1] == "board_watts" and row.split(",")[-1] == "412.5"
    assert data["counters"]["board_watts"] == 412.5
    assert data["report"]["columns"]["board_watts"] == [412.5]
    about = data["report"]["about"]["board_watts"]
    assert (about["unit"], about["place"], about["label"], about["text"]) == ("W", 13, "watts", False)
    assert "| `board_watts` | W | Power that the board draws, by NVML. | yes |" in data["docs"]
