"""Rows that a later sweep keeps: `noisefloor sweep --reuse RUN`, on the host, whose rows are known by their sources."""

import json
import shutil

import pytest

from tests.cli.program import edit_json, needs_program, rows, sweep, write_rows

pytestmark = needs_program


@pytest.fixture(scope="module")
def problems(tmp_path_factory):
    folder = tmp_path_factory.mktemp("problems")
    (folder / "gemm.csv").write_text("network,m,n,k,count\n" + "".join(f"some,{m},16,16,1\n" for m in range(1, 22)))
    return folder


@pytest.fixture(scope="module")
def swept_once(problems, tmp_path_factory):
    folder = tmp_path_factory.mktemp("swept") / "before"
    result = sweep(problems, folder, "--variants", "host")
    assert result.returncode == 0, result.stderr
    return folder


@pytest.fixture
def swept(swept_once, tmp_path):
    return shutil.copytree(swept_once, tmp_path / "before")


def is_check(out, before, row):
    """One row in twenty, chosen by the sweep's folder and the run's time, is measured though it could be kept."""
    def fingerprint(text):
        value = 0xCBF29CE484222325
        for byte in text.encode():
            value = (value ^ byte) * 0x100000001B3 % 2**64
        return value

    seed = fingerprint(f"{out}{json.loads((before / 'env.json').read_text())['time_utc']}")
    return fingerprint(f"{seed:016x}{row['op']}/{row['problem']}/{row['dtype']}/{row['variant']}") % 20 == 0


def a_folder_with_checks(tmp_path, before, table):
    return next(out for out in (tmp_path / f"now{i}" for i in range(1000)) if sum(is_check(out, before, row) for row in table) == 2)


def by_problem(folder):
    return {row["problem"]: row for row in rows(folder)}


def date_back(folder):
    table = [{**row, "commit": "0123456789ab", "measured_utc": "2026-01-01T00:00:00Z"} for row in rows(folder)]
    write_rows(folder, table)
    edit_json(folder / "env.json", commit="0123456789ab")
    return table


def test_what_runs_the_same_is_kept(problems, swept, tmp_path):
    table = date_back(swept)
    now = a_folder_with_checks(tmp_path, swept, table)
    changed = next(row for row in table if row["status"] == "ok" and not is_check(now, swept, row))
    changed["signature"] = "of other code"
    write_rows(swept, table)
    result = sweep(problems, now, "--variants", "host", "--reuse", swept)
    assert result.returncode in (0, 1), result.stderr  # by the clock of a busy machine a check may fail
    new = by_problem(now)
    for row in table:
        kept = row["status"] == "ok" and row is not changed and not is_check(now, swept, row)
        assert (new[row["problem"]]["measured_utc"] == row["measured_utc"]) == kept, row
        assert not kept or all(new[row["problem"]][name] == row[name] for name in ("time_cold_us", "time_warm_us", "commit", "samples"))
    assert json.loads((now / "env.json").read_text())["reused_from"] == str(swept)
    assert len((now / "samples.jsonl").read_text().splitlines()) == len(table)

    # It is resumed, and reused, as any other.
    lines = (now / "sweep.csv").read_text().splitlines(keepends=True)
    (now / "sweep.csv").write_text("".join(lines[:-5]))
    assert sweep(problems, now, "--variants", "host", "--reuse", swept).returncode in (0, 1)
    assert len(rows(now)) == len(table)
    assert sweep(problems, tmp_path / "third", "--variants", "host", "--reuse", now).returncode in (0, 1)


def test_rows_that_are_not_true_are_found(problems, swept, tmp_path):
    """All rows say a third of what their code takes."""
    table = rows(swept)
    times = [name for name in table[0] if name.startswith("time_")]
    for row in table:
        row.update({name: repr(float(row[name]) / 3) for name in times if row[name]})
        row["gflops"] = row["gbps"] = ""
    write_rows(swept, table)
    lines = [json.loads(line) for line in (swept / "samples.jsonl").read_text().splitlines()]
    for line in lines:
        line.update({name: [value / 3 for value in line[name]] for name in ("cold_us", "warm_us", "warm_serial_us") if name in line})
    (swept / "samples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    now = a_folder_with_checks(tmp_path, swept, table)
    result = sweep(problems, now, "--variants", "host", "--reuse", swept)
    measured = by_problem(now)
    if not any(is_check(now, swept, row) and row["status"] == measured[row["problem"]]["status"] == "ok" for row in table):
        pytest.skip("other programs had the cores")
    assert result.returncode == 1 and "may not be true" in result.stderr, result.stderr
    assert sweep(problems, shutil.move(now, tmp_path / "moved"), "--variants", "host").returncode == 1, "the folder remembers"


@pytest.mark.parametrize("change", ["device", "schema", "no signature", "not a run", "missing"])
def test_what_cannot_be_reused_is_refused(problems, swept, tmp_path, change):
    if change == "device":
        edit_json(swept / "env.json", memory_bytes=1)
    elif change == "schema":
        edit_json(swept / "env.json", schema=99)
    elif change == "no signature":
        write_rows(swept, [{**row, "signature": ""} for row in rows(swept)])
    elif change == "not a run":
        (swept / "sweep.csv").write_text("x")
    else:
        shutil.rmtree(swept)
    result = sweep(problems, tmp_path / "now", "--variants", "host", "--reuse", swept)
    assert result.returncode == 2 and "--reuse" in result.stderr and str(swept) in result.stderr, result.stderr
    assert not (tmp_path / "now").exists()
