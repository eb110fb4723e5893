"""`noisefloor history` as a user meets it: table, CSV, page in a browser, refusals."""

import csv
import json
import subprocess
from pathlib import Path

import pytest

from tests.browser.page import PHONE, PROGRAM, Page, copy_recorded, read_rows, start_browser, write_rows

pytestmark = pytest.mark.skipif(not Path(PROGRAM).is_file(), reason="NOISEFLOOR_BINARY names no program")


def history(*arguments):
    return subprocess.run([PROGRAM, "history", *map(str, arguments)], capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Eight runs of the recorded rows; from the sixth on gemm is 6 % slower. Forty samples a row, within 1 %."""
    folder = tmp_path_factory.mktemp("runs")
    for number in range(8):
        run = copy_recorded(folder / f"run{number}")
        rows = [row for row in read_rows(run) if row["status"] == "ok" and row["op"] in ("gemm", "sampler_step")]
        with open(run / "samples.jsonl", "w") as file:
            for row in rows:
                slow = 1.06 if number >= 5 and row["op"] == "gemm" else 1
                wobble = 1 + 0.004 * ((number * 7) % 3 - 1)
                samples = [round(float(row["time_cold_us"]) * slow * wobble * (1 + 0.01 * ((i * 13) % 40 - 20) / 40), 4) for i in range(40)]
                row.update(time_cold_us=f"{sorted(samples)[20]:.6g}", time_warm_us="", samples="40", commit=f"commit{number}")
                for rate, work, by in (("gflops", "flops", "time_cold_us"), ("gbps", "bytes", "time_cold_us"), ("pct_of_roof", "gflops", "attainable_gflops")):
                    if row[rate]:
                        row[rate] = f"{float(row[work]) / float(row[by]) * (100 if rate == 'pct_of_roof' else 1e-3):.6g}"
                file.write(json.dumps({**{name: row[name] for name in ("op", "dtype", "problem", "variant")}, "cold_us": samples, "warm_us": []}) + "\n")
        write_rows(run, rows)
        environment = json.loads((run / "env.json").read_text())
        environment.update(time_utc=f"2026-01-{number + 1:02}T00:00:00Z", commit=f"commit{number}")
        environment.pop("schema", None)
        (run / "env.json").write_text(json.dumps(environment))
    return folder


def test_the_change_is_found_in_gemm_and_nowhere_else(runs, tmp_path):
    result = history(runs, "--csv", tmp_path / "h.csv")
    assert result.returncode == 0, result.stderr
    with open(tmp_path / "h.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    changes = {(line["series"], line["commit"]) for line in lines if line["changed_pct"]}
    totals = {line["series"] for line in lines if "/gemm/" in line["series"]}
    assert changes == {(series, "commit5") for series in totals} and len(totals) == 4
    assert all(abs(float(line["changed_pct"]) - 6) < 1 for line in lines if line["changed_pct"])
    assert any("/sampler_step/" in line["series"] for line in lines)
    assert result.stdout.count("changed at #6 (commit5)") == len(totals)


def test_the_page(runs, tmp_path):
    browser = start_browser()
    try:
        result = history(runs, "--case", "^gemm/.*/ptx_sm90a$", "--network", "sd15-b2", "--html", tmp_path / "h.html")
        assert result.returncode == 0, result.stderr
        page = Page(browser).open(tmp_path / "h.html")
        page.wait("document.querySelector('.panel .plot').data", "the first panel")
        assert page.js("return document.querySelector('.panel .plot').data.find((trace) => trace.meta === 'values').x.length") == 8
        assert "at #6 (commit5)" in page.texts(".panel .caption")[0]
        assert "commit5" in page.texts("#change-list tbody")[0]
        count = page.texts("#trend-pager .range")[0]
        page.js("document.querySelector('#search').value = 'm=8192'; document.querySelector('#search').dispatchEvent(new Event('input'))")
        assert page.texts("#trend-pager .range")[0] != count
        assert all("m=8192" in text for text in page.texts(".panel h3"))
        assert page.errors() == []
        page.open(tmp_path / "h.html", size=PHONE, scheme="dark")
        page.wait("document.querySelector('.panel .plot').data", "the first panel")
        assert page.js("return document.documentElement.scrollWidth") <= PHONE[0]
        assert page.errors() == []
    finally:
        browser.quit()


@pytest.mark.parametrize("arguments, says", [(["RUNS", "--time", "lukewarm"], "lukewarm"), ([], "dirs"),
                                             (["RUNS", "--csv", "RUNS/run0/shard.json"], "is the same file as --csv")])
def test_refusals(runs, arguments, says, tmp_path):
    result = subprocess.run([PROGRAM, "history", *[word.replace("RUNS", str(runs)) for word in arguments]], capture_output=True, text=True, timeout=60,
                            cwd=tmp_path)
    assert result.returncode == 2, result
    assert says in result.stderr
    assert list(tmp_path.iterdir()) == []
