"""`noisefloor history` as a user meets it: table, CSV, page in a browser, refusals."""

import pytest

from tests.browser.page import PHONE, Page, start_browser
from tests.cli.gated_runs import write_run
from tests.cli.program import needs_program, read_table, run

pytestmark = needs_program


def history(*arguments, **kwargs):
    return run("history", *arguments, **kwargs)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Eight runs of twenty cases; from the sixth on fifteen of them are 6 % slower."""
    folder = tmp_path_factory.mktemp("runs")
    for number in range(8):
        write_run(folder / f"run{number}", [50 * (1.06 if number >= 5 and i < 15 else 1) for i in range(20)], seed=number, commit=f"commit{number}")
    return folder


def test_the_change_is_found_where_it_is_and_nowhere_else(runs, tmp_path):
    result = history(runs, "--case", ".", "--csv", tmp_path / "h.csv")
    assert result.returncode == 0, result.stderr
    lines = read_table(tmp_path / "h.csv")
    assert {(line["series"], line["commit"]) for line in lines if line["changed_pct"]} == {(f"gemm/m={i},n=64,k=64/bf16/ptx", "commit5") for i in range(1, 16)}
    assert all(abs(float(line["changed_pct"]) - 6) < 1 for line in lines if line["changed_pct"]) and len(lines) == 8 * 20
    assert result.stdout.count("changed at #6 (commit5)") == 15
    assert history(runs).stdout.count("changed at #6 (commit5): net-b1/gemm/bf16/own best") == 1


def test_the_page(runs, tmp_path):
    browser = start_browser()
    try:
        result = history(runs, "--case", "^gemm/.*/ptx$", "--network", "net-b1", "--html", tmp_path / "h.html")
        assert result.returncode == 0, result.stderr
        page = Page(browser).open(tmp_path / "h.html")
        page.wait("document.querySelector('.panel .plot').data", "the first panel")
        assert page.js("return document.querySelector('.panel .plot').data.find((trace) => trace.meta === 'values').x.length") == 8
        assert "at #6 (commit5)" in page.texts(".panel .caption")[0]
        assert "commit5" in page.texts("#change-list tbody")[0]
        count = page.texts("#trend-pager .range")[0]
        page.js("document.querySelector('#search').value = 'm=17,'; document.querySelector('#search').dispatchEvent(new Event('input'))")
        assert page.texts("#trend-pager .range")[0] != count
        assert all("m=17," in text for text in page.texts(".panel h3"))
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
    result = history(*[word.replace("RUNS", str(runs)) for word in arguments], cwd=tmp_path)
    assert result.returncode == 2, result
    assert says in result.stderr
    assert list(tmp_path.iterdir()) == []
