"""A new column is one line in one table: the worked example of docs/adding.md, followed in a scratch copy."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLE = "reports/run/columns.def"
FILES = ["reports/column_json.cpp", "reports/run/bound.cpp", "reports/run/case_id.cpp", "reports/run/columns.cpp", "reports/run/csv.cpp", "reports/run/files.cpp",
         "reports/run/sweep_csv.cpp"]
LINE = re.search(rf"<!-- example: column, in {TABLE}, .*? -->\n```\w*\n(.*?)```", (ROOT / "docs" / "adding.md").read_text(), re.S)[1]
DRIVER = """
#include <iostream>
#include <fstream>
#include "reports/column_json.h"
#include "reports/run/columns.h"
using namespace noisefloor;
int main(int, char** arguments) {
  SweepRow row;
  row.op = "gemm";
  row.board_watts = 412.5;
  std::ofstream(arguments[1]) << sweep_csv_header() << to_csv(row);
  nlohmann::json counters;
  for (const auto& [name, value] : counters_of(row)) counters[name] = value;
  std::cout << nlohmann::json{{"counters", counters}, {"report", rows_json(read_sweep_csv(arguments[1]))}, {"docs", columns_markdown([](const auto&) { return true; })}};
}
"""


def test_a_column_is_one_line(tmp_path):
    compiler = os.environ.get("CXX") or shutil.which("c++")
    if not compiler:
        pytest.skip("no C++ compiler")
    shutil.copytree(ROOT / "reports", tmp_path / "reports", ignore=shutil.ignore_patterns("recorded", "html"))
    table = tmp_path / TABLE
    before = table.read_text()
    end = before.index("// clang-format on")
    table.write_text(before[:end] + LINE + before[end:])
    (tmp_path / "driver.cpp").write_text(DRIVER)
    command = [compiler, "-std=c++20", "-O0", "-I", tmp_path, *(tmp_path / file for file in FILES), tmp_path / "driver.cpp", "-lfmt", "-o", tmp_path / "driver"]
    built = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([tmp_path / "driver", tmp_path / "sweep.csv"], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    data = json.loads(ran.stdout)
    header, row = (tmp_path / "sweep.csv").read_text().splitlines()
    assert header.split(",")[-1] == "board_watts" and row.split(",")[-1] == "412.5"
    assert data["counters"]["board_watts"] == 412.5
    assert data["report"]["columns"]["board_watts"] == [412.5]
    about = data["report"]["about"]["board_watts"]
    assert (about["unit"], about["place"], about["label"], about["text"]) == ("W", 13, "watts", False)
    assert "| `board_watts` | W | Power that the board draws, by NVML. | yes |" in data["docs"]
