"""Runs of the same cases pooled: one run folder, whose rows have the samples of all."""

import csv
import json
import shutil

import pytest

from tests.cli.program import needs_program, rows, run
from tests.cli.split_sweep import edit_json, swept, write_rows  # noqa: F401

pytestmark = needs_program


def scale(folder, factor):
    """As if all its samples and times were 10 us times `factor`."""
    samples = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    for one in samples:
        for name in ("cold_us", "warm_us"):
            one[name] = [10.0 * factor] * len(one[name])
    (folder / "samples.jsonl").write_text("".join(json.dumps(one) + "\n" for one in samples))
    table = rows(folder)
    for row in table:
        for name in ("time_cold_us", "time_warm_us", "time_warm_serial_us"):
            row[name] = str(10.0 * factor)
        for name, of in ("gflops", "flops"), ("gbps", "bytes"):
            row[name] = f"{float(row[of]) / float(row['time_cold_us']) * 1e-3:.6g}"
        row["pct_of_roof"] = f"{100 * float(row['gflops']) / float(row['attainable_gflops']):.6g}"
    write_rows(folder, table)


@pytest.fixture
def repeated(swept, tmp_path):
    """One part three times over, as three processes measure it: the same cases, other times."""
    for index, factor in ((1, 1), (2, 3), (3, 2)):
        folder = tmp_path / f"run{index}"
        shutil.copytree(swept.folder / "part1", folder)
        (folder / "shard.json").unlink()
        edit_json(folder / "env.json", time_utc=f"2026-01-0{index}T00:00:00Z")
        scale(folder, factor)
    return tmp_path


def pool(folder, *more, runs=(1, 2, 3)):
    return run("merge", "--pool", *(folder / f"run{index}" for index in runs), "--out", folder / "pooled", *more)


def test_runs_of_the_same_cases_are_pooled(repeated):
    assert run("merge", *(repeated / f"run{index}" for index in (1, 2)), "--out", repeated / "merged").returncode == 2  # no parts
    result = pool(repeated)
    assert result.returncode == 0, result.stderr
    pooled, single = rows(repeated / "pooled"), rows(repeated / "run1")
    assert [row["problem"] for row in pooled] == [row["problem"] for row in single]
    for row, one in zip(pooled, single):
        assert row["processes"] == "3" and float(row["time_warm_us"]) == float(row["time_warm_serial_us"]) == 20
        assert float(row["gflops"]) == pytest.approx(float(row["flops"]) / float(row["time_cold_us"]) * 1e-3, rel=1e-4)
        assert float(row["pct_of_roof"]) == pytest.approx(100 * float(row["gflops"]) / float(row["attainable_gflops"]), rel=1e-4)
    lines = (repeated / "pooled" / "samples.jsonl").read_text().splitlines()
    taken = [[json.loads(line) for line in (repeated / f"run{index}" / "samples.jsonl").read_text().splitlines()] for index in (1, 2, 3)]
    for line, *ones in zip(lines, *taken):
        for name in ("cold_us", "cold_batches", "warm_us", "warm_batches"):
            assert json.loads(line)[name] == [value for one in ones for value in one[name]]
    assert run("roofline", repeated / "pooled").returncode == 0
    assert run("gate", "--baseline", repeated / "pooled", "--candidate", repeated / "pooled").returncode == 0


def test_what_failed_in_one_run_has_failed(repeated):
    table = rows(repeated / "run2")
    table[0].update(status="incorrect", reason="the second element")
    write_rows(repeated / "run2", table)
    result = pool(repeated)
    assert result.returncode == 1, result.stderr
    failed = [row for row in rows(repeated / "pooled") if row["status"] == "incorrect"]
    assert [row["problem"] for row in failed] == [table[0]["problem"]] and failed[0]["reason"] == "the second element"


def test_only_runs_of_the_same_cases_are_pooled(repeated, swept):
    file = repeated / "run2" / "sweep.csv"
    text = file.read_text().splitlines()
    file.write_text("\n".join(text[:-1]) + "\n")
    result = pool(repeated)
    assert result.returncode == 2 and "missing: 1 of the 2 cases of" in result.stderr, result.stderr
    (repeated / "run2" / "cases.csv").unlink()  # an older folder does not know what was chosen
    for runs in ((1, 2, 3), (2, 1, 3)):
        result = pool(repeated, runs=runs)
        assert result.returncode == 2 and "run2: has no gemm" in result.stderr, result.stderr
    shutil.copytree(swept.folder / "part1", repeated / "part1")
    for parts in ([swept.folder / f"part{index}" for index in (1, 2, 3)], [swept.folder / "part1", repeated / "part1"]):
        result = run("merge", "--pool", *parts, "--out", repeated / "pooled")
        assert result.returncode == 2 and "part1: is a part of a split sweep: merge its parts first" in result.stderr
    assert not (repeated / "pooled").exists()


def test_a_gate_wants_no_fewer_processes_than_its_spread(repeated):
    assert pool(repeated).returncode == 0
    result = run("gate", "--baseline", repeated / "run1", "--candidate", repeated / "pooled")
    assert "processes that measured it" not in result.stdout, "the assumed spread is of one"
    noise = {"device": json.loads((repeated / "run1/env.json").read_text())["device"], "processes": 3, "sweeps": ["a", "b"],
             "classes": [{"phase": phase, "from_us": edge, "pairs": 50, "rms": 1e-4, "p99": 1e-4, "typical": 1e-4}
                         for phase in ("cold", "warm") for edge in (0.0, 3.0, 6.0, 10.0, 20.0, 50.0, 200.0, 1000.0)], "rows": []}
    (repeated / "run1/gate_noise.json").write_text(json.dumps(noise))
    result = run("gate", "--baseline", repeated / "run1", "--candidate", repeated / "pooled")
    assert "processes that measured it: 1 before, 3 now, but the spread is of rows of 3" in result.stdout, result.stdout + result.stderr
    (repeated / "run1/gate_noise.json").unlink()
    runs = [repeated / f"run{index}" for index in (1, 2)]
    result = run("gate", "--baseline", repeated / "pooled", "--spread", repeated / "pooled", *runs)
    assert result.returncode == 2 and "is of 1 processes, rows before it of 3" in result.stderr, result.stderr


def test_a_crosscheck_is_pooled_where_all_have_one(repeated):
    first = rows(repeated / "run1")[0]
    variant, problem = first["variant"], first["problem"]

    def check(index, us):
        (repeated / f"run{index}/crosscheck.csv").write_text(
            f'op,variant,dtype,problem,time_cold_us,do_bench_us,ratio\ngemm,{variant},bf16,"{problem}",1,{us},1\n')

    for index, us in ((1, 10), (2, 40)):
        check(index, us)
    result = pool(repeated)
    assert result.returncode == 0 and "note: crosscheck.csv is left out: not all runs have one" in result.stderr, result.stderr
    assert not (repeated / "pooled/crosscheck.csv").exists()
    check(3, 25)
    assert pool(repeated, "--replace").returncode == 0
    with open(repeated / "pooled/crosscheck.csv", newline="") as file:
        assert list(csv.DictReader(file)) == [{"op": "gemm", "variant": variant, "dtype": "bf16", "problem": problem,
                                               "time_cold_us": "20", "do_bench_us": "25", "ratio": "0.8"}]
    check(3, "fast")
    result = pool(repeated, "--replace")
    assert result.returncode == 2 and "run3/crosscheck.csv:2: column 'do_bench_us' is 'fast', not a time above 0" in result.stderr, result.stderr


def test_no_samples_are_pooled_twice(repeated):
    shutil.copytree(repeated / "run1", repeated / "copy")
    result = run("merge", "--pool", repeated / "run1", repeated / "run2", repeated / "copy", "--out", repeated / "pooled")
    assert result.returncode == 2 and "has the samples of" in result.stderr and not (repeated / "pooled").exists(), result.stderr
    assert pool(repeated, runs=(1, 2)).returncode == 0
    for pair in ("pooled", "run1"), ("run2", "pooled"):
        result = run("merge", "--pool", *(repeated / name for name in pair), "--out", repeated / "again")
        assert result.returncode == 2 and "pooled: has the samples of" in result.stderr, result.stderr
    assert run("merge", "--pool", repeated / "pooled", repeated / "run3", "--out", repeated / "again").returncode == 0
    assert {row["processes"] for row in rows(repeated / "again")} == {"3"}


def test_duels_are_pooled_where_the_same_two_met(repeated):
    duel = {name: "1.05" if name.endswith(("cold", "warm")) else "1.01" if name.endswith("low") else "1.09"
            for name in ("duel_cold", "duel_cold_low", "duel_cold_high", "duel_warm", "duel_warm_low", "duel_warm_high")}
    for index in (1, 2, 3):
        table = rows(repeated / f"run{index}")
        table[0].update(duel, rival="cublaslt")
        table[1].update(duel, rival="cublaslt" if index < 3 else "torch_eager")
        write_rows(repeated / f"run{index}", table)
    result = pool(repeated)
    assert result.returncode == 0 and "1 rows have no duel: their runs did not let the same two meet" in result.stderr, result.stderr
    first, second = rows(repeated / "pooled")
    assert first["rival"] == "cublaslt" and float(first["duel_warm"]) == pytest.approx(1.05, rel=1e-3) and float(first["duel_warm_low"]) > 1.01
    assert second["rival"] == second["duel_cold"] == second["duel_warm_high"] == ""


def test_only_runs_of_one_build_are_pooled(repeated):
    edit_json(repeated / "run2" / "env.json", build_type="Debug")
    result = pool(repeated)
    assert result.returncode == 2 and "run2: is of another build: 'build_type' is \"Debug\", in " in result.stderr, result.stderr
    edit_json(repeated / "run2" / "env.json", build_type=json.loads((repeated / "run1/env.json").read_text())["build_type"], **{"plugin mine.so": "1234"})
    result = pool(repeated)
    assert result.returncode == 2 and "is of another build: 'plugin mine.so' is" in result.stderr, result.stderr
    result = run("merge", "--pool", "--partial", repeated / "run1", repeated / "run3", "--out", repeated / "pooled")
    assert result.returncode == 2 and "--pool with --partial" in result.stderr
