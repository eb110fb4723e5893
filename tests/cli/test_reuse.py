"""Rows that a later sweep keeps: `noisefloor sweep --reuse RUN`, on the host, whose rows are known by their sources."""

import csv
import json
import shutil

import pytest

from tests.cli.program import needs_program, rows, sweep

pytestmark = needs_program
PROBLEMS = 21  # of each twenty rows that can be kept, one is measured all the same


@pytest.fixture
def problems(tmp_path):
    folder = tmp_path / "problems"
    folder.mkdir()
    (folder / "gemm.csv").write_text("network,m,n,k,count\n" + "".join(f"some,{m},16,16,1\n" for m in range(1, PROBLEMS + 1)))
    return folder


@pytest.fixture
def swept(problems, tmp_path):
    result = sweep(problems, tmp_path / "before", "--variants", "host")
    assert result.returncode == 0, result.stderr
    return tmp_path / "before"


def by_problem(folder):
    return {row["problem"]: row for row in rows(folder)}


def write(folder, table):
    with open(folder / "sweep.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, list(table[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)


def change_environment(folder, **facts):
    file = folder / "env.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **facts}))


def test_what_runs_the_same_is_kept(problems, swept, tmp_path):
    before, now = swept, tmp_path / "now"
    table = rows(before)
    for row in table:
        row["commit"], row["measured_utc"] = "0123456789ab", "2026-01-01T00:00:00Z"
    change_environment(before, commit="0123456789ab")
    table[3]["signature"] = "of other code"
    write(before, table)
    result = sweep(problems, now, "--variants", "host", "--reuse", before)
    assert result.returncode in (0, 1), result.stderr  # a check of this machine's clock may fail
    old, new = by_problem(before), by_problem(now)
    kept = [problem for problem, row in new.items() if row["measured_utc"] == "2026-01-01T00:00:00Z"]
    assert PROBLEMS - 3 <= len(kept) <= PROBLEMS - 2 and table[3]["problem"] not in kept  # one or two are checked
    assert all(new[problem]["time_cold_us"] == old[problem]["time_cold_us"] and new[problem]["commit"] == "0123456789ab" for problem in kept)
    assert json.loads((now / "env.json").read_text())["reused_from"] == str(before)
    samples = {sample["problem"]: sample for sample in map(json.loads, (now / "samples.jsonl").read_text().splitlines())}
    assert set(samples) == set(new)

    # It is resumed, and reused, as any other.
    lines = (now / "sweep.csv").read_text().splitlines(keepends=True)
    (now / "sweep.csv").write_text("".join(lines[:-5]))
    assert sweep(problems, now, "--variants", "host", "--reuse", before).returncode in (0, 1)
    assert len(rows(now)) == PROBLEMS
    assert sweep(problems, tmp_path / "third", "--variants", "host", "--reuse", now).returncode in (0, 1)


def test_rows_that_are_not_true_are_found(problems, swept, tmp_path):
    """All rows say a third of what their code takes."""
    table = rows(swept)
    times = [name for name in table[0] if name.startswith("time_")]
    for row in table:
        row.update({name: repr(float(row[name]) / 3) for name in times if row[name]})
        row["gflops"] = row["gbps"] = ""
    write(swept, table)
    lines = [json.loads(line) for line in (swept / "samples.jsonl").read_text().splitlines()]
    for line in lines:
        line.update({name: [value / 3 for value in line[name]] for name in ("cold_us", "warm_us", "warm_serial_us") if name in line})
    (swept / "samples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = sweep(problems, tmp_path / "now", "--variants", "host", "--reuse", swept)
    assert result.returncode == 1 and "may not be true" in result.stderr, result.stderr


@pytest.mark.parametrize("change", ["device", "schema", "no signature", "not a run", "missing"])
def test_what_cannot_be_reused_is_refused(problems, swept, tmp_path, change):
    if change == "device":
        change_environment(swept, memory_bytes=1)
    elif change == "schema":
        change_environment(swept, schema=99)
    elif change == "no signature":
        write(swept, [{**row, "signature": ""} for row in rows(swept)])
    elif change == "not a run":
        (swept / "sweep.csv").write_text("x")
    else:
        shutil.rmtree(swept)
    result = sweep(problems, tmp_path / "now", "--variants", "host", "--reuse", swept)
    assert result.returncode == 2 and "--reuse" in result.stderr and str(swept) in result.stderr, result.stderr
    assert not (tmp_path / "now").exists()
