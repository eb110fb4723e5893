"""noisefloor.load(): run folders as pandas frames with units, and what a notebook shows of them."""

import csv
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import built
import pytest

pandas = pytest.importorskip("pandas")
import noisefloor  # noqa: E402
import numpy as np  # noqa: E402

from tests.cli.program import read_table  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "reports" / "recorded" / "nvidia-h200"


@pytest.fixture(scope="module")
def recorded():
    return noisefloor.load(RECORDED)


def test_columns_are_those_of_the_program(recorded):
    """Which lists them in docs/columns.md."""
    table = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|", (ROOT / "docs/columns.md").read_text(), re.M)
    assert list(recorded.columns) == [name for name, _, _ in table] and len(table) > 50
    assert recorded.units == {name: unit for name, unit, _ in table} and recorded.units["time_cold_us"] == "µs"
    assert recorded.descriptions == {name: text for name, _, text in table}
    assert [str(recorded[name].dtype) for name in ("op", "bound", "time_cold_us", "samples")] == ["object", "object", "float64", "Int64"]


def test_rows_are_those_of_the_file(recorded):
    rows = read_table(RECORDED / "sweep.csv")
    assert len(recorded) == len(rows)
    for name in ("op", "problem", "status", "reason"):
        assert list(recorded[name]) == [row[name] for row in rows]
    for name in ("time_cold_us", "registers", "dram_read_bytes", "waves"):
        values = [None if pandas.isna(value) else float(value) for value in recorded[name]]
        assert values == [float(row[name]) if row[name] else None for row in rows]
    ceilings = {row["name"]: (float(row["value"]), row["unit"]) for row in read_table(RECORDED / "ceilings.csv")}
    assert recorded.device == "NVIDIA H200" and recorded.ceilings["dram_copy"] == ceilings["dram_copy"]


def test_an_older_run_has_todays_names_of_networks():
    older = RECORDED.parent / "nvidia-h100-80gb-hbm3"
    networks = noisefloor.load(older)["networks"].astype(str)
    rows = read_table(older / "sweep.csv")
    for old, name in {"sd15-whole-b2": "sd15-b2", "square": "square"}.items():
        wanted = [bool(re.search(rf"(^|;){old}:", row["networks"])) for row in rows]
        assert any(wanted) and np.array_equal(networks.str.contains(rf"(?:^|;){name}:"), wanted)


def test_an_older_run_lacks_newer_columns():
    assert noisefloor.load(ROOT / "tests" / "reports" / "older_run")["waves"].isna().all()


def test_columns_are_read_by_their_old_names(recorded, tmp_path):
    old = noisefloor._results.OLD_NAMES
    with open(RECORDED / "sweep.csv", newline="") as file:
        table = csv.reader(file)
        header, row = next(table), next(line for line in table if line[7] == "ok")
    values = {name: value for name, value in zip(header, row) if name not in {*old, *old.values()}} | dict.fromkeys(old, "3")
    (tmp_path / "sweep.csv").write_text("\n".join(",".join(f'"{one}"' for one in line) for line in (values, values.values())) + "\n")
    frame = noisefloor.load(tmp_path)
    assert list(frame.columns) == list(recorded.columns) and all(float(frame[name].iloc[0]) == 3 for name in old.values())


def test_a_selection_knows_its_units(recorded):
    gemm = recorded[recorded["op"] == "gemm"][["variant", "time_cold_us", "gflops"]]
    assert gemm.units == {"variant": "", "time_cold_us": "µs", "gflops": "GFLOP/s"} and gemm.device == "NVIDIA H200"
    assert recorded.assign(mine=1).units["mine"] == ""


def test_a_notebook_shows_a_table_and_the_roofline(recorded):
    page = recorded._repr_html_()
    assert page.count("<tr") == 1 + 25 and "cold µs" in page and f"{len(recorded)} rows of NVIDIA H200, the first 25 shown" in page
    drawing = page[page.index("<svg") :]
    assert ElementTree.fromstring(drawing).tag.endswith("svg")
    assert all(text in drawing for text in ("NVIDIA H200", "groupnorm", "DRAM"))
    selection = recorded.head(3)._repr_html_()
    assert "<svg" not in selection and selection.count("<tr") == 4
    assert "roofline" not in recorded[["networks"]]._repr_html_(), "without rows to draw nothing is raised"


def test_the_roofline_leaves_matplotlib_as_it_was(recorded):
    matplotlib = pytest.importorskip("matplotlib")
    import matplotlib.pyplot as plt

    before, figures = dict(matplotlib.rcParams), plt.get_fignums()
    drawing = recorded[recorded["op"] == "gemm"].roofline(theme="dark")
    assert dict(matplotlib.rcParams) == before and plt.get_fignums() == figures
    assert drawing._repr_svg_() == str(drawing) and drawing.startswith("<svg")
    dtypes = sorted(set(recorded[recorded["status"] == "ok"]["dtype"]))
    for dtype in ("fp64", np.float64, np.dtype("float64")):
        with pytest.raises(ValueError, match=f"no row of dtype 'fp64' is ok; there are some of {', '.join(dtypes)}"):
            recorded.roofline(dtype=dtype)


def test_text_of_a_run_is_no_markup(recorded):
    frame = recorded.head(1).copy()
    frame["reason"] = "<script>alert(1)</script>"
    assert "<script>" not in frame._repr_html_()


def write(folder, text, ceilings=None):
    folder.mkdir()
    (folder / "sweep.csv").write_text(text)
    if ceilings is not None:
        (folder / "ceilings.csv").write_text(ceilings)
    return folder


HEADER = "op,variant,kind,dtype,problem,status,device,time_cold_us,registers,mine,note\n"
ROW = 'gemm,ptx,ptx,bf16,"m=1,n=2",ok,GPU,1.5,32,7,x\n'


def test_what_a_run_lacks_or_has_beside(tmp_path):
    frame = noisefloor.load(write(tmp_path / "r", HEADER + ROW + ROW.replace(",32,7,", ",,8,").replace("n=2", "n=3") + "gemm,ptx,cut"))
    assert len(frame) == 2 and frame.ceilings == {}
    assert frame["problem"][0] == "m=1,n=2" and frame["registers"][0] == 32 and frame["registers"].isna()[1]
    assert list(frame["mine"]) == [7, 8] and list(frame["note"]) == ["x", "x"], "unknown columns are kept"
    assert "No roofline: the run has no ceiling dram_copy" in frame._repr_html_()
    empty = noisefloor.load(write(tmp_path / "e", HEADER))
    assert len(empty) == 0 and "0 rows" in empty._repr_html_()


@pytest.mark.parametrize("text, ceilings, says", [
    ("op,variant\n", None, "sweep.csv: has no column kind, dtype, problem, status, device, time_cold_us"),
    ("", None, "sweep.csv: cannot be read"),
    (HEADER.replace("mine", "op") + ROW, None, "a column is there twice"),
    (HEADER + ROW + "gemm,ptx\n", None, "line 3 has 2 fields, not 11"),
    *((HEADER + ROW.replace("1.5", wrong), None, f"column time_cold_us: '{wrong}' is not a number above 0") for wrong in ("fast", "inf", "1_000", "-5", "0", "1e999")),
    *((HEADER + ROW.replace("32", wrong), None, f"column registers: '{wrong}' is not a whole number") for wrong in ("3.5", "1e300", "-32")),
    (HEADER.replace("registers", "buffer_slots") + ROW.replace("32", "0"), None, "column buffer_slots: '0' is not a number from 1"),
    (HEADER.replace("registers", "waited_pct") + ROW.replace("32", "101"), None, "column waited_pct: '101' is not a percentage from 0 to 100"),
    (HEADER + ROW.replace(",ok,", ",fast,"), None, "column status: 'fast' is not a status"),
    (HEADER + ROW.replace("1.5", ""), None, "column time_cold_us: blank, but status is ok"),
    (HEADER + ROW.replace("x", "x" * 200_000), None, "sweep.csv: cannot be read: field larger than field limit"),
    (HEADER + ROW + ROW, None, "the row gemm m=1,n=2 bf16 ptx is there twice"),
    (HEADER + ROW, "name,value,unit\nl2,1,GB/s\nl2,2,GB/s\n", "a ceiling is there twice"),
    (HEADER + ROW, "name,value\n", "ceilings.csv: has no column unit"),
    *((HEADER + ROW, f"name,value,unit\nl2,{wrong},GB/s\n", "column value: '") for wrong in ("-1", "", "much")),
])
def test_damaged_files_are_named(tmp_path, text, ceilings, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        noisefloor.load(write(tmp_path / "r", text, ceilings))


def test_statuses_are_those_of_the_program():
    text = (ROOT / "reports/run/sweep_csv.h").read_text()
    outcomes = re.search(r"enum class Outcome \{(.*?)\}", text, re.S)[1]
    assert noisefloor._results.STATUSES == tuple(re.sub(r"//.*", "", outcomes).replace(",", " ").split())


def test_an_unknown_column_of_numbers_is_one(tmp_path):
    for value, kind in (("-7.5", "f"), ("7", "f"), ("", "f"), ("seven", "O")):
        assert noisefloor.load(write(tmp_path / f"r{value}", HEADER + ROW.replace(",7,", f",{value},"), None))["mine"].dtype.kind == kind


def test_what_is_no_run(tmp_path):
    with pytest.raises(ValueError, match="is not a run folder: it has no sweep.csv"):
        noisefloor.load(tmp_path)
    (tmp_path / "sweep.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="cannot be read"):
        noisefloor.load(tmp_path)


def without(module, code):
    """Runs code in a Python that cannot import the module."""
    hidden = f"import sys; sys.modules[{module!r}] = None; sys.path.insert(0, {built.FOLDER!r}); import noisefloor\n{code}"
    return subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True)


def test_pandas_and_matplotlib_are_asked_for_where_they_are_missing(tmp_path):
    lacking = without("pandas", f"noisefloor.load({str(RECORDED)!r})")
    assert lacking.stderr.splitlines()[-1] == "ImportError: noisefloor.load needs pandas: pip install pandas (and matplotlib, for rooflines)"
    page = without("matplotlib", f"print(noisefloor.load({str(RECORDED)!r})._repr_html_())")
    assert page.returncode == 0 and "No roofline: a roofline needs matplotlib" in page.stdout and "<table" in page.stdout


def test_an_installed_package_draws_too(tmp_path):
    subprocess.run(["cmake", "--install", Path(built.FOLDER).parent, "--prefix", tmp_path, "--component", "python"], check=True, capture_output=True)
    shutil.copytree(RECORDED, tmp_path / "run")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import noisefloor; print(noisefloor.load('run').query('op == \"gemm\"').roofline()[:4])"
    result = subprocess.run([sys.executable, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert result.stdout == "<svg\n", result.stderr
