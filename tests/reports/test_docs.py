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


@needs_program
def test_a_table_of_variants_says_which_problems_and_variants_are_not_recorded(monkeypatch):
    recorded = write_docs.rows_of
    monkeypatch.setattr(write_docs, "rows_of", lambda *file: [row for row in recorded(*file) if row.get("variant") != "tiled"])
    made = write_docs.variants("gemm | m=1,n=1,k=1 | m=1024,n=1152,k=384")
    assert "1: `m=1024,n=1152,k=384`. Not recorded: `m=1,n=1,k=1`, " in made and "2: cold us" not in made
    assert "`tiled`" in made.split("\n")[0] and "| `tiled`" not in made
    named = [row.split("`")[1] for row in made.splitlines() if row.startswith("| `")]
    ours = [name for name in named if name in write_docs.variants_of("gemm")]
    assert ours == [name for name in write_docs.variants_of("gemm") if name in ours] and named[: len(ours)] == ours, "best last, before others"


def test_a_table_of_variants_says_that_its_op_is_not_recorded():
    recorded = write_docs.rows_of
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write_docs, "rows_of", lambda *file: [one for one in recorded(*file) if one.get("op") != "resample"])
        assert write_docs.variants("resample | n=1,h=2,w=2,channels=8") == "The recorded run has no row of this op.\n"
        with pytest.raises(write_docs.CannotBeMade, match="has no row of resampel"):
            write_docs.variants("resampel | n=1")


@needs_program
def test_a_table_of_which_kernel_is_that_of_the_program(tmp_path, monkeypatch):
    monkeypatch.setattr(write_docs, "TRANSFORMERS", tmp_path / "sets.json")
    for sets, has in (["adm64-b1", "none-1024"], "\n## attention\n"), (["none-1024"], "has no row of these problems"):
        write_docs.TRANSFORMERS.write_text(json.dumps(dict.fromkeys(sets)))
        assert has in write_docs.made("which")


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


def test_gains_take_the_last_table(tmp_path, monkeypatch):
    monkeypatch.setattr(write_docs.experiments, "FOLDER", tmp_path)
    (tmp_path / "a.md").write_text("# a\n\n* **Commit**: 2b9230a to 52d9201\n\n| patched | 9,000 us |\n| torch.compile, mode default | 9,000 us |\n\n| patched | 4,500 us |\n"
                                   "| torch.compile, mode default | 6,000 us |\n")
    made = write_docs.made("gains a.md")
    assert "6,000 us to 4,500 us, 0.75" in made and "`52d9201`" in made
    (tmp_path / "a.md").write_text("# a\n\n| patched | 9,000 us |\n")
    with pytest.raises(write_docs.CannotBeMade, match="torch.compile"):
        write_docs.made("gains a.md")


def test_totals_tell_wins_and_losses(tmp_path, monkeypatch):
    (tmp_path / "env.json").write_text((write_docs.RECORDED / "env.json").read_text())
    (tmp_path / "sweep.csv").write_text("commit\nabc\n")
    (tmp_path / "totals.csv").write_text(
        "network,set,op,dtype,choice,kind,cold_us,warm_us,problems,missing,warm_missing,won,lost,equal,unresolved,worst_ratio,worst_problem,"
        "shortcuts,plain_cold_us,plain_warm_us,serial_us,serial_missing,plain_serial_us,launches,covered,launches_cold_us,launches_warm_us,"
        "launches_serial_us,over_launches,launches_weights_cold_us,over_weights_cold\n"
        "adm64-b1,,conv2d,bf16,own best,,681.2,275.3,12,0,0,7,3,1,1,1.25,\"n=2,h=3\",2,600.4,250,301.2,0,270\n"
        "adm64-b1,,conv2d,bf16,library,,693.4,260.1,12,0,0,3,9,0,0,1.1,,2,500,200.2\n"
        "adm64-b1,,all ops,bf16,own best,,999,999,50,0,0,1,1,0,0,1,,0,1,1\n"
        "stream,yes,resample,bf16,own best,,333,335,3,0,0,0,0,0,0,,,,,\n"
        "stream,yes,layernorm,bf16,own best,,262,260,2,1,0,0,0,0,0,,,,,\n"
        "digits-b1,,network,bf16,plan_own,network,264.9,240.9,1,0,0,1,0,0,0,0.9,,0,264.9,240.9,,0,,50,49,300.1,250.2,270.4,0.963,255.5,0.943\n"
        "digits-b1,,network,bf16,plan_baseline,baseline,298.6,255.3,1,0,0,0,1,0,0,1.1,,0,298.6,255.3\n")
    monkeypatch.setattr(write_docs, "RECORDED", tmp_path)
    made = write_docs.totals("").split("\n\n")[1].splitlines()
    assert made[2:] == ["| adm64-b1 | conv2d | 12 | 681 | 275 | 301 | 693 | 260 |  |  | 7 | 3 | 1 | 1 | 1.25 |",
                        "| adm64-b1 | conv2d, no shortcuts | 10 | 600 | 250 | 270 | 500 | 200 |  |  |  |  |  |  |  |",
                        "| stream (set) | resample | 3 | 333 | 335 |  |  |  |  |  |  |  |  |  |  |",
                        "| digits-b1 | whole, `plan_own` | 1 | 265 | 241 |  | 299 | 255 |  |  | 1 | 0 | 0 | 0 | 0.90 |",
                        "| digits-b1 | its launches, 98 % timed; it takes 0.963 of their sum, 0.943 with their weights cold (256) |  | 300 | 250 | 270 |  |  |  |  |  |  |  |  |  |"]
    assert write_docs.slower("") == "* conv2d: 3 of 12, at worst 1.25 of the baseline's time (`adm64-b1`)\n"


def test_no_measured_figure_is_typed():
    found = [f"{path.relative_to(ROOT)}: '{match[0]}'" for path in FILES if not of_an_experiment(path) for match in FIGURE.finditer(typed(path.read_text()))]
    assert not found, "figures stand between markers or in docs/experiments:\n" + "\n".join(found)


@pytest.mark.parametrize("text, figure", [("12 us", True), ("97.6 %", True), ("1.06x", True), ("790 TFLOP/s", True), ("2x2 taps", False), ("a 3x3", False),
                                          ("14 use", False), ("half a percent", False)])
def test_what_counts_as_a_figure(text, figure):
    assert bool(FIGURE.search(text)) == figure


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
