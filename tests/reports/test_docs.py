"""What people read: generated blocks are as reports/docs/write_docs.py makes them, no measured figure is typed, pages stay short, links lead somewhere."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from reports.docs import write_docs  # noqa: E402
from tests.cli.program import needs_program  # noqa: E402

FIGURE = re.compile(r"(?<![\w.])\d[\d,.]*(?:x(?!\w)|×|\s?(?:us|µs|ms|%|[TG]FLOP/s|[TG]B/s)(?![\w/]))")
FILES = write_docs.markdown_files()
NEED_THE_PROGRAM = [path for path in FILES if re.search("<!-- generated: (commands|columns|rules|variants|which)", path.read_text())]
LONGEST_ROOM, LONGEST_HEADER, WORDS_OF_README, WORDS_OF_READMES = 80, 15, 600, 12_000


def of_an_experiment(path):
    return write_docs.experiments.FOLDER in path.parents


def typed(text):
    return write_docs.BLOCK.sub("", text)


def check(*files):
    return subprocess.run([sys.executable, ROOT / "reports" / "docs" / "write_docs.py", "--check", *files], capture_output=True, text=True, timeout=300)


def test_generated_blocks_are_as_they_are_made():
    result = check(*(path for path in FILES if path not in NEED_THE_PROGRAM))
    assert result.returncode == 0, result.stderr


@needs_program
def test_blocks_of_the_program_are_as_it_prints_them():
    assert NEED_THE_PROGRAM
    result = check(*NEED_THE_PROGRAM)
    assert result.returncode == 0, result.stderr


@needs_program
@pytest.mark.parametrize("page", [path for path in FILES if "\n## Variants\n" in path.read_text()], ids=lambda page: page.parent.name)
def test_variants_in_prose_have_the_order_of_the_code(page):
    section = typed(page.read_text().split("\n## Variants\n")[1].split("\n## ")[0])
    named = re.findall(r"^\| `(\w+)` \|", section, re.M)
    assert [name for name in named if name != "host"] == write_docs.variants_of(page.parent.name)


def test_a_block_that_differs_is_named(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- generated: ceilings -->\n99 GB/s\n<!-- end -->\n")
    result = check(page)
    assert result.returncode == 1 and "page.md" in result.stderr and "'ceilings'" in result.stderr
    assert "99 GB/s" in page.read_text()


@pytest.mark.parametrize("text, says", [
    ("<!-- generated: pie -->\n<!-- end -->\n", "nothing is called pie"),
    ("<!-- generated: variants gemm | m=1,n=1,k=1 -->\n<!-- end -->\n", "has no row of gemm m=1,n=1,k=1"),
    ("<!-- generated: ceilings -->\n", "has no <!-- end -->"),
])
def test_a_block_that_cannot_be_made_is_refused(tmp_path, text, says):
    page = tmp_path / "page.md"
    page.write_text(text)
    result = check(page)
    assert result.returncode == 2 and says in result.stderr


def device_of(folder):
    return json.loads((folder / "env.json").read_text())["device"]


def test_a_recorded_folder_has_its_own_figures(tmp_path):
    for name in ("env.json", "sweep.csv"):
        (tmp_path / name).write_text((write_docs.RECORDED / name).read_text().replace(device_of(write_docs.RECORDED), "Another GPU"))
    page = tmp_path / "README.md"
    page.write_text("<!-- generated: rows -->\n<!-- end -->\n")
    assert subprocess.run([sys.executable, ROOT / "reports" / "docs" / "write_docs.py", page], timeout=60).returncode == 0
    assert "Another GPU, driver" in page.read_text()


def test_a_table_of_an_experiment_leads_where_its_links_lead(tmp_path, monkeypatch):
    monkeypatch.setattr(write_docs.experiments, "FOLDER", tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "a.md").write_text("# a\n\n| x |\n|---|\n| [b](b.md) and [c](../gemm/c.md), [out](https://a.b/c.md) |\n\nText.\n")
    assert write_docs.made("experiment-table runs/a.md") == "| x |\n|---|\n| [b](experiments/runs/b.md) and [c](experiments/gemm/c.md), [out](https://a.b/c.md) |\n"
    (tmp_path / "runs" / "b.md").write_text("# b\n")
    for entry, why in (("runs/b.md", "runs/b.md has no table"), ("runs/c.md", "docs/experiments has no runs/c.md")):
        with pytest.raises(write_docs.CannotBeMade, match=why):
            write_docs.made(f"experiment-table {entry}")


@pytest.mark.parametrize("lines", ["", "* **Finding**: a\n* **Finding**: b\n"])
def test_a_page_of_an_experiment_has_one_finding(tmp_path, monkeypatch, lines):
    monkeypatch.setattr(write_docs.experiments, "FOLDER", tmp_path)
    (tmp_path / "gemm").mkdir()
    page = tmp_path / "gemm" / "a.md"
    page.write_text("# gemm: clusters\n\n* **Finding**: They help.\n")
    assert write_docs.made("experiments-index") == "## gemm\n\n* [clusters](gemm/a.md): They help.\n"
    assert write_docs.made("findings gemm/a.md") == "* They help. ([experiment](experiments/gemm/a.md))\n"
    page.write_text("# gemm: clusters\n\n" + lines)
    with pytest.raises(write_docs.CannotBeMade, match="a.md"):
        write_docs.made("experiments-index")


def test_blocks_take_another_record():
    for folder in sorted((ROOT / "reports" / "recorded").glob("*/")):
        assert device_of(folder) in write_docs.made(f"ceilings {folder.name}")
    assert write_docs.made("ceilings") == write_docs.made(f"ceilings {write_docs.RECORDED.name}")
    with pytest.raises(write_docs.CannotBeMade, match="ceilings.csv is not there"):
        write_docs.made("ceilings nvidia-h300")


def test_no_measured_figure_is_typed():
    found = [f"{path.relative_to(ROOT)}: '{match[0]}'" for path in FILES if not of_an_experiment(path) for match in FIGURE.finditer(typed(path.read_text()))]
    assert not found, "figures stand between markers or in docs/experiments:\n" + "\n".join(found)


def test_pages_stay_short():
    readmes = {path: path.read_text() for path in FILES if path.name == "README.md" and ROOT / "docs" not in path.parents}
    long = [f"{path.relative_to(ROOT)}: {len(text.splitlines())} lines" for path, text in readmes.items()
            if path != ROOT / "README.md" and len(text.splitlines()) > LONGEST_ROOM]
    assert not long
    assert len(typed(readmes[ROOT / "README.md"]).split()) <= WORDS_OF_README
    assert sum(len(text.split()) for text in readmes.values()) <= WORDS_OF_READMES


def test_headers_of_kernels_stay_short():
    found = []
    for path in [*ROOT.glob("kernels/*/*.cu"), *ROOT.glob("kernels/*/*.cuh")]:
        lines = path.read_text().splitlines()
        header = next((number for number, line in enumerate(lines) if not line.startswith("//")), len(lines))
        if header > LONGEST_HEADER:
            found.append(f"{path.relative_to(ROOT)}: {header} lines")
    assert not found


def test_links_lead_somewhere():
    found = []
    for path in FILES:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text()):
            if "://" not in target and not (path.parent / target).exists():
                found.append(f"{path.relative_to(ROOT)}: {target}")
    assert not found, "\n".join(found)


def test_named_scripts_exist():
    found = [f"{path.relative_to(ROOT)}: scripts/{name}" for path in FILES if not of_an_experiment(path)
             for name in re.findall(r"\bscripts/([a-z][\w.-]*\w)", path.read_text()) if not (ROOT / "scripts" / name).exists()]
    assert not found, "\n".join(found)
