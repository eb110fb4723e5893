"""report.html in a real browser: loads without errors, filters, hover, table, dark and phone, hostile text, 5,000 rows."""

import json
import os
import re
import shutil
import subprocess

import pytest

from tests.browser.page import PHONE, ROOT, Page, copy_recorded, many_rows, report, start_browser
from tests.cli.program import PROGRAM, needs_program, read_table, run, sweep, write_rows
from tests.cli.program import rows as read_rows

pytestmark = needs_program
STYLE = json.loads((ROOT / "reports" / "page" / "style.json").read_text())


@pytest.fixture(scope="module")
def browser():
    started = start_browser()
    yield started
    started.quit()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    return copy_recorded(tmp_path_factory.mktemp("recorded") / "run")


@pytest.fixture(scope="module")
def terminal(recorded):
    result = report(recorded)
    assert result.returncode == 0, result.stderr
    if "no plots" in result.stderr:
        message = "no plotly.min.js (scripts/setup installs it)"
        pytest.fail(message) if os.environ.get("NOISEFLOOR_REQUIRE_BROWSER") else pytest.skip(message)
    return result.stdout


@pytest.fixture
def page(browser, recorded, terminal):
    opened = Page(browser).open(recorded / "report.html")
    yield opened
    assert opened.errors() == []


def drawable(rows, **wanted):
    """op -> indices of the rows that have a place on a roofline."""
    found = {}
    for index, row in enumerate(rows):
        matches = all(wanted_value in (row[name] if name != "networks" else [use.split(":")[0] for use in row["networks"].split(";")])
                      if name == "networks" else row[name] == wanted_value for name, wanted_value in wanted.items())
        if row["status"] == "ok" and float(row["flops"]) > 0 and matches:
            found.setdefault(row["op"], []).append(index)
    return found


def as_sets(points):
    return {op: set(indices) for op, indices in points.items()}


def test_every_verified_row_is_a_point_under_every_ceiling(page, recorded):
    points = page.points()
    assert as_sets(points) == as_sets(drawable(read_rows(recorded)))
    assert all(len(set(indices)) == len(indices) for indices in points.values())
    page.click("[data-value=all]")  # every pipe
    page.draw_all()
    lines = page.js("""return document.querySelector('.panel[data-op=gemm] .plot').data.filter((trace) => trace.mode === 'lines')
                              .map((trace) => [trace.name, trace.line.dash === 'solid', Math.max(...trace.y) / 1e9])""")
    with_datasheet = {"dram_copy", "dram_read", "fma_fp32", "tensor_bf16", "tensor_fp16", "tensor_tf32", "tensor_fp8"}
    assert {name for name, measured, _ in lines if measured} == with_datasheet | {"l2"}
    assert {name for name, measured, _ in lines if not measured} == with_datasheet
    heights = {(name, measured): height for name, measured, height in lines}
    ceilings = {row["name"]: row for row in read_table(recorded / "ceilings.csv")}
    assert heights["tensor_bf16", True] == pytest.approx(float(ceilings["tensor_bf16"]["value"]))
    assert heights["tensor_bf16", False] == pytest.approx(989500)  # the datasheet's
    rows = read_rows(recorded)
    traces = page.js("""return [...document.querySelectorAll('.panel .plot')].flatMap((plot) => plot.data)
                               .filter((trace) => trace.customdata).map((trace) => [trace.customdata, trace.x, trace.y])""")
    for indices, xs, ys in traces:
        for index, x, y in zip(indices, xs, ys):
            assert x == pytest.approx(float(rows[index]["ai"]), rel=1e-4)
            assert y == pytest.approx(float(rows[index]["flops"]) / float(rows[index]["time_cold_us"]) * 1e6, rel=1e-4)


def test_filters_act_on_all_views(page, recorded):
    rows = read_rows(recorded)
    page.click(".chip[data-filter=op][data-value=gemm]")
    page.click(".chip[data-filter=kind][data-value=ptx]")
    page.click(".chip[data-filter=network][data-value=sd15-unfused-b2]")
    expected = drawable(rows, op="gemm", kind="ptx", networks="sd15-b2")  # as it was called when it was recorded
    assert as_sets(page.points()) == as_sets(expected)
    assert set(page.texts("#bar-cards .label")) <= {"ptx_sm90a", "ptx_sm90a_small_m"} and page.texts("#bar-cards .label")
    assert set(page.texts("#rows tbody td:nth-child(4)")) <= {"ptx_sm90a", "ptx_sm90a_small_m"}
    assert page.texts("#total-cards .network .title") == ["sd15-unfused-b2"]
    shown = len([row for row in rows if row["op"] == "gemm" and row["kind"] == "ptx" and "sd15-b2:" in row["networks"]])
    assert page.texts("#table-pager .range") == [f"1–{min(50, shown)} of {shown}"]
    assert f"{shown} of {len(rows):,}" in page.texts("#filters summary")[0]
    address = page.js("return location.hash")
    assert "op=gemm" in address and "kind=ptx" in address
    page.click("#filters .clear")
    assert as_sets(page.points()) == as_sets(drawable(rows))


def test_an_address_opens_its_view_and_serial_times_are_one(browser, recorded, terminal, tmp_path):
    folder = copy_recorded(tmp_path / "run")
    rows = read_rows(folder)
    write_rows(folder, [{**row, "time_warm_serial_us": "8" if row["op"] == "gemm" and row["status"] == "ok" else ""} for row in rows])
    assert report(folder).returncode == 0
    page = Page(browser).open(folder / "report.html", fragment="#time=serial")
    assert page.texts("[aria-pressed=true][data-value=serial]") == ["warm, serial"]
    assert as_sets(page.points()) == as_sets(drawable(rows, op="gemm"))
    assert "cublaslt8 µs1.00×" in page.texts("#bar-cards")[0]
    page = Page(browser).open(folder / "report.html", fragment="#op=sampler_step&kind=baseline&op=nonsense")
    assert as_sets(page.points()) == as_sets(drawable(rows, op="sampler_step", kind="baseline"))
    assert page.errors() == []


def card_matches(page, row, index):
    assert page.js("return Number(document.querySelector('#card').dataset.row)") == index
    fields = page.js("return Object.fromEntries([...document.querySelectorAll('#card [data-field]')].map((f) => [f.dataset.field, f.textContent]))")
    card = page.texts("#card")[0]
    for name in ("op", "problem", "dtype", "variant", "status", "reason"):
        assert row[name] in card, name
    for name, value in row.items():
        if name == "networks":  # the recorded folder has the names of before
            assert fields[name].count(";") == value.count(";")
        elif value and name not in ("op", "problem", "dtype", "variant", "kind", "status", "reason"):
            shown = fields[name].split(" ")[0].replace(",", "")
            try:
                assert float(shown) == pytest.approx(float(value), rel=6e-3, abs=1e-4), name
            except ValueError:
                assert fields[name] == value


def test_hover_shows_the_whole_row_and_a_click_keeps_it(page, recorded):
    from selenium.webdriver.common.action_chains import ActionChains

    rows = read_rows(recorded)
    page.draw_all()
    for op in ("gemm", "sampler_step"):
        mark = page.js("""const panel = document.querySelector(`.panel[data-op=${arguments[0]}]`);
                          panel.scrollIntoView({block: 'center'});
                          return [...panel.querySelectorAll('.points path')].at(-1);""", op)
        ActionChains(page.browser).move_to_element(mark).perform()
        page.wait("!document.querySelector('#card').hidden", "the card")
        index = page.js("return Number(document.querySelector('#card').dataset.row)")
        assert rows[index]["op"] == op
        card_matches(page, rows[index], index)
        ActionChains(page.browser).move_to_element(mark).click().perform()
        page.wait("document.querySelector('#card.pinned')", "the kept card")
        command = page.texts("#card pre")[0]
        assert rows[index]["problem"] in command and rows[index]["variant"] in command
        elsewhere = ActionChains(page.browser)
        elsewhere.w3c_actions.pointer_action.move_to_location(5, 5)
        elsewhere.perform()
        assert page.js("return !document.querySelector('#card').hidden"), "a kept card stays"
        page.browser.switch_to.active_element.send_keys("\ue00c")  # Escape
        assert page.js("return document.querySelector('#card').hidden")


def test_the_table_sorts_and_searches(page, recorded):
    rows = read_rows(recorded)
    times = [(float(row["time_cold_us"]), index) for index, row in enumerate(rows) if row["time_cold_us"]]
    page.click("th[data-column=time_cold_us] button")
    assert page.table() == [index for _, index in sorted(times)][:50]
    page.click("th[data-column=time_cold_us] button")
    assert page.table() == [index for _, index in sorted(times, key=lambda t: (-t[0], t[1]))][:50]
    assert page.js("return document.querySelector('th[data-column=time_cold_us]').ariaSort") == "descending"
    page.click("th[data-column=variant] button")
    assert [rows[index]["variant"] for index in page.table()] == sorted(row["variant"] for row in rows)[:50]
    from selenium.webdriver.common.by import By

    page.browser.find_element(By.ID, "search").send_keys("UNSUPPORTED ptx groupnorm")
    found = [row for row in rows if row["status"].startswith("unsupported") and row["op"] == "groupnorm" and "ptx" in str(row)]
    assert page.texts("#table-pager .range") == [f"1–{min(50, len(found))} of {len(found)}" if found else "none"]
    page.js("document.querySelector('#search').value = ''; document.querySelector('#search').dispatchEvent(new Event('input'))")
    page.click("#table-pager .next")
    assert page.texts("#table-pager .range") == [f"51–100 of {len(rows):,}"]
    page.click("#column-choice [data-value=all]")
    known = run("list", "columns", "--format", "json").stdout.splitlines()
    assert len(known) >= len(rows[0]) and len(page.texts("#rows th")) == len(known) + 2  # sol_score is of the page, and the mark


def test_totals_are_those_of_the_terminal(page, terminal):
    page.click("#totals-controls [data-value=all]")
    shown = {}
    while True:
        for network, op, dtype, choice, value in page.js("""
            const found = [];
            for (const card of document.querySelectorAll('.network')) {
              let op, dtype;
              for (const child of card.children) {
                if (child.matches('.op')) [op, dtype] = child.textContent.replace(',', '').split(' ');
                if (child.matches('.bar')) found.push([card.dataset.network, op, dtype, child.querySelector('.label').textContent, child.querySelector('.value').textContent]);
              }
            }
            return found;"""):
            shown[network, op, dtype, choice] = float(value.replace(",", ""))
        if not page.js("const next = document.querySelector('#totals-controls .next'); return next && !next.disabled"):
            break
        page.click("#totals-controls .next")
    checked = 0
    for line in terminal.splitlines():
        match = re.match(r"(\S+)\s+(\S+)\s+(bf16)\s+(.+?)\s+([\d.]+)\s+([\d.]+|-)\s+(\d+) of (\d+)(?:\s+won .*)?$", line)
        if match:
            network, op, dtype, choice, cold, _, timed, problems = match.groups()
            label = choice if timed == problems else f"{choice} ({timed} of {problems})"
            assert shown[network, op, dtype, label] == pytest.approx(float(cold), rel=6e-3, abs=0.06)
            checked += 1
    assert checked == len([key for key in shown if key[1] != "all"]) > 50


def test_rows_that_are_not_ok_are_named_with_their_reasons(page, recorded):
    rows = read_rows(recorded)
    text = page.texts("#not-ok")[0]
    for row in rows:
        if row["status"] != "ok":
            assert row["status"] in text and row["reason"] in text
    assert "H200" in page.texts("h1")[0] and "580.159.04" in page.texts("#environment-list")[0]


def test_light_and_dark(page):
    for scheme in ("light", "dark"):
        page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        page.draw_all()
        colour = page.js("return getComputedStyle(document.body).backgroundColor")
        assert "#%02x%02x%02x" % tuple(map(int, re.findall(r"\d+", colour))) == STYLE["surface"][scheme]["paper"]
        kinds = json.dumps({kind: look[scheme] for kind, look in STYLE["kinds"].items()})
        page.wait(f"(() => {{ const marks = [...document.querySelectorAll('.plot')].flatMap((p) => p.data).filter((t) => t.meta);"
                  f" return marks.length > 0 && marks.every((t) => t.marker.color === ({kinds})[t.meta]); }})()", f"{scheme} marks")


def test_a_phone(browser, recorded, terminal):
    page = Page(browser).open(recorded / "report.html", size=PHONE)
    page.draw_all()
    assert page.js("return document.documentElement.scrollWidth") <= PHONE[0]
    for selector in (".plot", ".bars", ".scroll", "pre"):
        widths = page.js("return [...document.querySelectorAll(arguments[0])].map((e) => e.getBoundingClientRect().right)", selector)
        assert widths and max(widths) <= PHONE[0]
    assert page.js("return document.querySelector('#filters details').open") is False
    page.click("#rows tbody tr")
    page.wait("document.querySelector('#card.pinned')", "the card")
    place = page.js("const r = document.querySelector('#card').getBoundingClientRect(); return [r.left, r.right, r.bottom]")
    assert place == pytest.approx([0, *PHONE], abs=1)
    assert page.errors() == []


HOSTILE = ["</script><script>window.hacked = 1</script>", "<img src=x onerror='window.hacked=1'>", "<!--<script>", "a\"b'c`${window.hacked=1}", "<b>bold</b> &lt;",
           "\u2028\u2029 \u202e"]


def test_hostile_text_is_text(browser, recorded, terminal, tmp_path):
    folder = copy_recorded(tmp_path / "run")
    rows, taken = read_rows(folder)[:60], set()
    for row, text in zip(rows, HOSTILE * 10):
        row.update(op=text, problem=f"{text} {len(taken)}", variant=text, reason=text, bound=f"memory:{text}", commit=HOSTILE[2], networks="", kind="ptx")
        taken.add(row["problem"])
    for row in rows:
        row["device"] = HOSTILE[0]
    write_rows(folder, rows)
    (folder / "networks.csv").unlink()
    (folder / "env.json").write_text(json.dumps({"device": HOSTILE[0], "host": HOSTILE[1], "commit": HOSTILE[2], "command_lines": [["noisefloor", *HOSTILE]]}))
    result = report(folder)
    assert result.returncode == 0, result.stderr
    page = Page(browser).open(folder / "report.html")
    page.draw_all()
    assert page.texts("h1") == [HOSTILE[0]]
    assert page.js("return window.hacked") is None
    assert page.js("return document.querySelectorAll('main img, main b, header img, header script').length") == 0
    assert set(HOSTILE) <= {name for name in page.js("return [...document.querySelectorAll('.chip[data-filter=op]')].map((c) => c.dataset.value)")}
    for text in HOSTILE:
        page.js("document.querySelector('#search').value = arguments[0]; document.querySelector('#search').dispatchEvent(new Event('input'))", text.split()[0])
        page.click("#rows tbody tr")
        assert text.split()[0] in page.texts("#card")[0]
        command = page.texts("#card pre")[0]
        words = subprocess.run(["bash", "-c", f"noisefloor() {{ printf '%s\\0' \"$@\"; }}; {command}"], capture_output=True, text=True, timeout=120)
        assert words.stdout.split("\0")[1] in HOSTILE and words.stdout.split("\0")[3].startswith(tuple(HOSTILE))
        page.browser.switch_to.active_element.send_keys("\ue00c")
    assert page.js("return window.hacked") is None
    assert page.errors() == []


def test_5000_rows(browser, recorded, terminal, tmp_path):
    folder = many_rows(tmp_path / "run")
    result = report(folder)
    assert result.returncode == 0, result.stderr
    file = folder / "report.html"
    library = next(len(script) for script in re.findall(r"<script>(.*?)</script>", file.read_text(), re.S) if "plotly.js v" in script[:400])
    assert library > 1_000_000
    assert file.stat().st_size - library < 5_000_000
    page = Page(browser).open(file)
    assert page.texts("#table-pager .range") == ["1–50 of 5,000"]
    points = page.points()
    assert sum(map(len, points.values())) == sum(map(len, drawable(read_rows(folder)).values()))
    page.click(".chip[data-filter=op][data-value=gemm]")
    assert list(page.points()) == ["gemm"]
    paint = page.js("return performance.getEntriesByName('first-contentful-paint')[0].startTime")
    print(f"5,000 rows: {(file.stat().st_size - library) / 1e6:.2f} MB without the library, first paint after {paint:.0f} ms")
    assert page.errors() == []


def test_commands_measure_the_same_case(browser, recorded, terminal, tmp_path):
    problems = tmp_path / "problems"
    problems.mkdir()
    (problems / "gemm.csv").write_text("network,m,n,k,act,count\nmini,8,16,24,silu,3\nmini,16,16,8,none,1\n")
    folder = tmp_path / "run"
    swept = sweep(problems, folder)
    assert swept.returncode == 0, swept.stderr
    assert report(folder).returncode == 0
    page = Page(browser).open(folder / "report.html")
    rows = read_rows(folder)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "noisefloor").symlink_to(PROGRAM)
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    for index, row in enumerate(rows):
        page.click(f"#rows tr[data-row='{index}']")
        again = subprocess.run(["bash", "-c", page.texts("#card pre")[0]], capture_output=True, text=True, timeout=300, env=environment)
        assert again.returncode == 0, again.stderr
        assert row["problem"] in again.stdout and row["variant"] in again.stdout and " ok" in again.stdout
        page.browser.switch_to.active_element.send_keys("\ue00c")
    assert page.errors() == []


def test_an_interrupted_run_says_so_first(browser, recorded, terminal, tmp_path):
    folder = copy_recorded(tmp_path / "run")
    rows = read_rows(folder)
    with open(folder / "cases.csv", "w") as file:
        file.write("op,dtype,problem,variant\n")
        file.writelines(f'{row["op"]},{row["dtype"]},"{row["problem"]}",{row["variant"]}\n' for row in rows)
    write_rows(folder, rows[:-7])
    with open(folder / "sweep.csv", "a") as file:
        file.write("gemm,torn,bas")
    assert report(folder).returncode == 0
    page = Page(browser).open(folder / "report.html")
    notice = page.texts("#notices")[0]
    assert f"7 of the {len(rows)} cases" in notice and "ends within a row" in notice
    assert page.texts("#without-row tbody td:nth-child(4)") == [row["problem"] for row in rows[-7:]]
    assert page.errors() == []


def test_without_the_library_everything_but_the_plots_works(browser, recorded, terminal, tmp_path):
    program = shutil.copy(PROGRAM, tmp_path / "noisefloor")  # nothing is installed beside it
    folder = copy_recorded(tmp_path / "run")
    result = subprocess.run([program, "roofline", folder], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0 and "run scripts/setup" in result.stderr
    page = Page(browser).open(folder / "report.html")
    assert "run scripts/setup" in page.texts("#panels")[0]
    page.click(".chip[data-filter=op][data-value=gemm]")
    assert set(page.texts("#rows tbody td:first-child")) == {"gemm"} and page.texts("#bar-cards .bar")
    assert page.errors() == []


def test_a_column_that_nobody_knows_is_shown_and_a_set_says_so(browser, recorded, terminal, tmp_path):
    folder = copy_recorded(tmp_path / "run")
    rows = read_rows(folder)
    write_rows(folder, [{"of_later": f"later {i}", **row, "watts": i + 0.5} for i, row in enumerate(rows)])
    assert report(folder).returncode == 0
    page = Page(browser).open(folder / "report.html")
    page.click("#column-choice [data-value=all]")
    page.click("th[data-column=watts] button")
    page.click("th[data-column=watts] button")
    assert page.table()[0] == len(rows) - 1, "a column of numbers sorts as numbers"
    page.click("#rows tbody tr")
    assert f"later {len(rows) - 1}" in page.texts("#card [data-field=of_later]")
    page.browser.switch_to.active_element.send_keys("\ue00c")
    page.click(".chip[data-filter=network][data-value=stream]")
    assert "A set of problems, not a network." in page.texts("#total-cards .network")[0]
    assert page.errors() == []
