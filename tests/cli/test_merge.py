"""A sweep that is split into parts, and the parts made one run folder again."""

import csv
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

PROGRAM = os.environ.get("NOISEFLOOR_BINARY", "")
pytestmark = pytest.mark.skipif(not Path(PROGRAM).is_file(), reason="NOISEFLOOR_BINARY names no program")
SIZES = range(1, 6)


def run(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=300)


def rows(folder):
    with open(folder / "sweep.csv", newline="") as file:
        return list(csv.DictReader(file))


def sizes(folder):
    return [int(row["problem"].split(",")[0][2:]) for row in rows(folder)]


def set_gpu(folder, uuids):
    """As if the rows were of these GPUs, in their order."""
    there = rows(folder)
    with open(folder / "sweep.csv", "w", newline="") as out:
        writer = csv.DictWriter(out, there[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(row | {"gpu_uuid": uuid} for row, uuid in zip(there, uuids))


def edit_json(file, **values):
    content = json.loads(file.read_text())
    content.update(values)
    file.write_text(json.dumps(content))


class Split:
    def __init__(self, folder):
        self.problems = folder / "problems"
        self.problems.mkdir()
        (self.problems / "gemm.csv").write_text("network,m,n,k,count\n" + "".join(f"many,{m},8,8,2\n" for m in SIZES))
        self.folder = folder

    def sweep(self, out, *more):
        return run("sweep", "--device", "host", "--problems", self.problems, "--networks", "all", "--out", out, *more)

    def part(self, index, count=3, *more):
        return self.sweep(self.folder / f"part{index}", "--shard", f"{index}/{count}", *more)

    def merge(self, *more, parts=(1, 2, 3)):
        return run("merge", *(self.folder / f"part{index}" for index in parts), "--out", self.folder / "merged", *more)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    split = Split(tmp_path_factory.mktemp("split"))
    for index in (1, 2, 3):
        result = split.part(index)
        assert result.returncode == 0, result.stderr
    return split


@pytest.fixture
def split(swept, tmp_path):
    """A copy of the parts, to be spoilt."""
    for folder in swept.folder.iterdir():
        shutil.copytree(folder, tmp_path / folder.name)
    copy = object.__new__(Split)
    copy.folder, copy.problems = tmp_path, tmp_path / "problems"
    return copy


def test_parts_are_every_third_problem(swept):
    assert [sizes(swept.folder / f"part{index}") for index in (1, 2, 3)] == [[1, 4], [2, 5], [3]]


def test_merged_parts_are_the_sweep_that_was_not_split(split):
    result = split.merge(parts=(3, 1, 2))  # in any order
    assert result.returncode == 0, result.stderr
    merged = split.folder / "merged"
    assert sizes(merged) == list(SIZES)
    assert {row["status"] for row in rows(merged)} == {"ok"}
    lines = {line for index in (1, 2, 3) for line in (split.folder / f"part{index}" / "samples.jsonl").read_text().splitlines()}
    assert set((merged / "samples.jsonl").read_text().splitlines()) == lines
    environment = json.loads((merged / "env.json").read_text())
    assert len(environment["merged_from"]) == len(environment["command_lines"]) == 3
    assert not (merged / "shard.json").exists()
    assert len((merged / "cases.csv").read_text().splitlines()) == 1 + len(SIZES)
    assert run("roofline", merged).returncode == 0
    # What was merged is a run folder like any other: nothing of the whole sweep is left to do.
    again = split.sweep(merged)
    assert again.returncode == 0 and "5 cases are already in" in again.stderr


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


def scale(folder, factor):
    samples = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    for one in samples:
        for name in ("cold_us", "warm_us"):
            one[name] = [10.0 * factor] * len(one[name])
    (folder / "samples.jsonl").write_text("".join(json.dumps(one) + "\n" for one in samples))
    with open(folder / "sweep.csv", newline="") as file:
        table = csv.DictReader(file)
        names, found = table.fieldnames, list(table)
    for row in found:
        for name in ("time_cold_us", "time_warm_us", "time_warm_serial_us"):
            row[name] = str(10.0 * factor)
        for name, of in ("gflops", "flops"), ("gbps", "bytes"):
            row[name] = f"{float(row[of]) / float(row['time_cold_us']) * 1e-3:.6g}"
        row["pct_of_roof"] = f"{100 * float(row['gflops']) / float(row['attainable_gflops']):.6g}"
    with open(folder / "sweep.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)


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
    file = repeated / "run2" / "sweep.csv"
    problem = rows(repeated / "run2")[0]["problem"]
    text = file.read_text().splitlines()
    cells = next(csv.reader([text[1]]))
    names = text[0].split(",")
    cells[names.index("status")], cells[names.index("reason")] = "incorrect", "the second element"
    with open(file, "w", newline="") as out:
        csv.writer(out, lineterminator="\n").writerows([names, cells, *csv.reader(text[2:])])
    result = pool(repeated)
    assert result.returncode == 1, result.stderr
    failed = [row for row in rows(repeated / "pooled") if row["status"] == "incorrect"]
    assert [row["problem"] for row in failed] == [problem] and failed[0]["reason"] == "the second element"


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
    result = run("merge", "--pool", *(swept.folder / f"part{index}" for index in (1, 2, 3)), "--out", repeated / "pooled")
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


def test_parts_keep_their_crosschecks(split):
    for index in (1, 3):
        [row, *_] = rows(split.folder / f"part{index}")
        (split.folder / f"part{index}/crosscheck.csv").write_text(
            f'op,variant,dtype,problem,time_cold_us,do_bench_us,ratio\ngemm,{row["variant"]},bf16,"{row["problem"]}",1,{index},1\n')
    assert split.merge().returncode == 0
    with open(split.folder / "merged/crosscheck.csv", newline="") as file:
        assert [row["do_bench_us"] for row in csv.DictReader(file)] == ["1", "3"]


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
        with open(repeated / f"run{index}" / "sweep.csv", "w", newline="") as out:
            writer = csv.DictWriter(out, table[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(table)
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


def test_ceilings_are_the_median(split):
    for index, factor in ((1, 1), (2, 7), (3, 2)):
        file = split.folder / f"part{index}" / "ceilings.csv"
        lines = [line.split(",") for line in file.read_text().splitlines()]
        for line in lines[1:]:
            line[1] = str(100 * factor)
        file.write_text("".join(",".join(line) + "\n" for line in lines))
    assert split.merge().returncode == 0
    with open(split.folder / "merged" / "ceilings.csv", newline="") as file:
        assert {float(row["value"]) for row in csv.DictReader(file)} == {200}


def test_parts_are_of_one_pytorch(split):
    edit_json(split.folder / "part2" / "env.json", pytorch="2.11.0", triton="3.6.0")  # the others have none of its rows
    assert split.merge().returncode == 0
    assert json.loads((split.folder / "merged" / "env.json").read_text())["pytorch"] == "2.11.0"
    edit_json(split.folder / "part3" / "env.json", pytorch="2.12.0", triton="3.6.0")
    result = split.merge("--replace")
    assert result.returncode == 2 and "is of PyTorch 'pytorch 2.12.0, triton 3.6.0', the folders before it of" in result.stderr


def test_parts_are_of_one_library(split):
    edit_json(split.folder / "part1" / "env.json", cudnn="9.13.0")  # another machine need not have it
    edit_json(split.folder / "part3" / "env.json", cudnn="9.14.1")
    result = split.merge()
    assert result.returncode == 2 and "part3: is of cudnn '9.14.1', the folders before it of '9.13.0'" in result.stderr


def test_parts_of_several_gpus_are_told_apart(split):
    for index, watts in ((1, 700), (2, 700.0), (3, 650)):
        edit_json(split.folder / f"part{index}" / "env.json", gpu_uuid=f"GPU-{index}", power_limit_w=watts, ecc="on", load_average=index)
        set_gpu(split.folder / f"part{index}", [f"GPU-{index}"] * 2)
    result = split.merge(parts=(3, 1, 2))
    assert result.returncode == 0, result.stderr
    notes = [line for line in result.stderr.splitlines() if line.startswith("note:")]
    assert notes == ['note: the parts are of different GPUs: ["GPU-3","GPU-1","GPU-2"]', "note: the parts are of different power limits in W: [650,700,700.0]"]
    merged = split.folder / "merged"
    assert [row["gpu_uuid"] for row in rows(merged)] == ["GPU-1", "GPU-2", "GPU-3", "GPU-1", "GPU-2"]
    environment = json.loads((merged / "env.json").read_text())
    assert environment["of_parts"] == {"gpu_uuid": ["GPU-3", "GPU-1", "GPU-2"], "power_limit_w": [650, 700, 700], "load_average": [3, 1, 2]}
    assert environment["ecc"] == "on" and not {"gpu_uuid", "power_limit_w", "load_average"} & set(environment)
    assert run("gate", "--baseline", merged, "--candidate", merged).returncode == 0


def both_kinds(split, out, *more):
    return split.sweep(out, "--ops", "elementwise", "--kinds", "host,tiled", "--dtypes", "bf16,fp32", *more)


def test_a_problem_has_one_gpu(split, tmp_path):
    """What another GPU left half done is measured anew; a merge names problems whose rows are of two all the same."""
    (split.problems / "elementwise.csv").write_text("network,op,hw,channels,count\nfew,silu,16,8,1\nfew,silu,64,8,1\n")
    out = tmp_path / "run"
    assert both_kinds(split, out, "--shard", "1/1").returncode == 0
    whole = rows(out)
    assert len(whole) == 8
    for name in ("sweep.csv", "samples.jsonl"):  # killed in its last problem but one
        file = out / name
        file.write_text("".join(file.read_text().splitlines(keepends=True)[: 6 if name == "sweep.csv" else 3]))
    set_gpu(out, ["GPU-1"] * 5)
    result = both_kinds(split, out, "--shard", "1/1")
    assert result.returncode == 0 and "1 rows of another" in result.stderr and "4 cases are already in" in result.stderr, result.stderr
    again = rows(out)
    key = ("op", "problem", "dtype", "variant")
    assert [[row[name] for name in key] for row in again] == [[row[name] for name in key] for row in whole]
    assert [row["gpu_uuid"] for row in again] == ["GPU-1"] * 4 + [""] * 4
    assert len((out / "samples.jsonl").read_text().splitlines()) == 4
    assert "measured anew" not in both_kinds(split, out, "--shard", "1/1").stderr
    set_gpu(out, ["GPU-1"] * 5 + ["GPU-2"] * 3)
    result = run("merge", out, "--out", tmp_path / "merged")
    assert result.returncode == 0 and "note: the rows of 1 problems are of several GPUs, as of elementwise/op=silu" in result.stderr, result.stderr


def test_a_part_is_of_one_driver(split):
    driver = json.loads((split.folder / "part1" / "env.json").read_text())["driver"]
    edit_json(split.folder / "part1" / "env.json", driver="1.2")
    result = split.part(1)
    assert result.returncode == 2 and f"holds rows of driver 1.2, this is {driver}" in result.stderr


def test_parts_of_several_sweeps_are_merged_at_once(split, tmp_path):
    assert split.sweep(tmp_path / "other", "--dtypes", "fp16", "--shard", "1/1").returncode == 0
    result = run("merge", *(split.folder / f"part{index}" for index in (1, 2, 3)), tmp_path / "other", "--out", tmp_path / "both")
    assert result.returncode == 0, result.stderr
    assert [(row["dtype"], row["problem"].split(",")[0]) for row in rows(tmp_path / "both")] == [
        (dtype, f"m={size}") for dtype in ("bf16", "fp16") for size in SIZES]
    result = run("merge", split.folder / "part1", tmp_path / "other", "--out", tmp_path / "some", "--partial")
    assert result.returncode == 0 and f"missing: part 2, 3 of 3 (of the sweep of {split.folder / 'part1'})" in result.stderr


def test_columns_of_another_version_are_kept(split):
    """One part has a column that nobody here knows, and its columns in another order; another its cases as version 0.1 named them."""
    part = split.folder / "part2"
    there = rows(part)
    with open(part / "sweep.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, ["of_later", *reversed(there[0])], lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, "of_later": f"later, {row['problem']}"} for row in there)
    for name, value in (("networks.csv", "n"), ("cases.csv", "c")):
        file = part / name
        lines = file.read_text().splitlines()
        file.write_text("".join(line + (",of_later\n" if i == 0 else f",{value}{i}\n") for i, line in enumerate(lines)))
    old = split.folder / "part3" / "shard.json"
    edit_json(old, cases=[case.replace("/", "|") for case in json.loads(old.read_text())["cases"]])
    result = split.merge()
    assert result.returncode == 0, result.stderr
    merged = split.folder / "merged"
    assert sizes(merged) == list(SIZES)
    later = {row["problem"]: row["of_later"] for row in rows(merged)}
    assert {problem for problem, value in later.items() if value} == {row["problem"] for row in there}
    assert all(value in ("", f"later, {problem}") for problem, value in later.items())
    for name in ("networks.csv", "cases.csv"):
        with open(merged / name, newline="") as file:
            assert len([row for row in csv.DictReader(file) if row["of_later"]]) >= len(there), name
    assert "5 cases are already in" in split.sweep(merged).stderr
    assert {row["problem"]: row["of_later"] for row in rows(merged)} == later


def test_a_part_resumes_and_is_not_taken_for_another(split):
    part = split.folder / "part1"
    before = (part / "sweep.csv").read_text()
    assert "2 cases are already in" in split.part(1).stderr
    for out, more, says in [
        (part, ["--shard", "2/3"], "is part 1/3, this is 2/3"),
        (part, ["--shard", "1/4"], "is part 1/3, this is 1/4"),
        (part, ["--shard", "1/3", "--dtypes", "fp16"], "is part 1/3 of another choice of cases"),
        (part, [], "is part 1/3 of a sweep that was split"),
        (split.folder / "part2", ["--shard", "1/1"], "is part 2/3"),
        (part, ["--shard", ""], "--shard is '', not I/N with I from 1 to N and N up to"),
        (part, ["--shard", "0/3"], "--shard is '0/3', not I/N with I from 1 to N and N up to"),
    ]:
        result = split.sweep(out, *more)
        assert result.returncode == 2 and says in result.stderr, result.stderr
    assert (part / "sweep.csv").read_text() == before
    assert split.part(1, 4, "--fresh").returncode == 0


def test_more_parts_than_cases(split):
    for index in range(1, 8):
        assert split.part(index, 7, "--fresh").returncode == 0
    assert rows(split.folder / "part7") == []
    result = split.merge(parts=range(1, 8))
    assert result.returncode == 0, result.stderr
    assert sizes(split.folder / "merged") == list(SIZES)


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "1/", "/3", "a/b", "1/0", "-1/3", "1/10001", "1/3/4", " 1/3"])
def test_what_is_not_a_part(text, swept):
    result = swept.sweep(swept.folder / "none", "--shard", text)
    assert result.returncode == 2 and "--shard is '" in result.stderr
    assert not (swept.folder / "none").exists()


def spoil_device(split):
    file = split.folder / "part2" / "sweep.csv"
    device = rows(split.folder / "part2")[0]["device"]
    file.write_text(file.read_text().replace(device, "Another"))


def drop_line(name):
    def spoil(split):
        file = split.folder / "part2" / name
        file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    return spoil


def double_network(split):
    file = split.folder / "part2" / "networks.csv"
    header, line, *_ = file.read_text().splitlines()
    count = header.split(",").index("count")
    cells = next(csv.reader([line]))
    cells[count] = "7"
    with open(file, "a", newline="") as out:
        csv.writer(out, lineterminator="\n").writerow(cells)


def duplicate(split):
    for name in ("sweep.csv", "samples.jsonl"):
        file = split.folder / "part2" / name
        file.write_text(file.read_text() + (split.folder / "part1" / name).read_text().splitlines(keepends=True)[-1])


@pytest.mark.parametrize(
    "spoil, says",
    [
        (lambda split: shutil.rmtree(split.folder / "part2"), "part2: no such folder"),
        (lambda split: (split.folder / "part2" / "sweep.csv").unlink(), "part2: no sweep.csv there"),
        (lambda split: edit_json(split.folder / "part2" / "env.json", commit="abc"), "part2: is of commit 'abc', the folders before it of"),
        (lambda split: edit_json(split.folder / "part2" / "env.json", driver="1.2"), "part2: is of driver '1.2'"),
        (lambda split: (edit_json(split.folder / "part2" / "env.json", device="Another"), spoil_device(split)), "part2: is of device 'Another'"),
        (lambda split: edit_json(split.folder / "part2" / "env.json", device="Another"), "part2/env.json says 'Another'"),
        (spoil_device, "part2/sweep.csv:2: the row of gemm/m=2,n=8,k=8/bf16/host is of device 'Another'"),
        (drop_line("sweep.csv"), "missing: 1 of the 2 cases of part 2/3"),
        (drop_line("samples.jsonl"), "samples.jsonl lacks the samples of gemm/m=5"),
        (drop_line("ceilings.csv"), "ceilings.csv"),
        (double_network, "' is there twice, first in line 2"),
        (duplicate, "part2: holds gemm/m=4,n=8,k=8/bf16/host, which is not of part 2/3"),
        (lambda split: (split.folder / "part2" / "shard.json").unlink(), "part2: is not a part of a split sweep"),
        (lambda split: (split.folder / "part2" / "shard.json").write_text("{"), "shard.json: not the shard.json of a sweep"),
        (lambda split: edit_json(split.folder / "part2" / "shard.json", shard="1/3"), "part 1/3 is there twice"),
        (lambda split: edit_json(split.folder / "part2" / "shard.json", selection="0"), "part 1, 3 of 3 (of the sweep of"),
        (lambda split: edit_json(split.folder / "part2" / "shard.json", shard="2/4"), "they were cut differently"),
        (lambda split: edit_json(split.folder / "part2" / "shard.json", places=[1]), "has not as many places as cases"),
    ],
)
def test_what_cannot_be_merged_is_named(spoil, says, split):
    spoil(split)
    result = split.merge()
    assert result.returncode == 2
    assert says in result.stderr, result.stderr
    assert not (split.folder / "merged").exists()
    assert not list(split.folder.glob("*.partial"))


def test_a_missing_part(split):
    result = split.merge(parts=(1, 3))
    assert result.returncode == 2 and "missing: part 2 of 3; sweep again" in result.stderr
    assert not (split.folder / "merged").exists()
    result = split.merge("--partial", parts=(1, 3))
    assert result.returncode == 0 and "missing: part 2 of 3" in result.stderr
    assert sizes(split.folder / "merged") == [1, 3, 4]


def test_only_what_a_merge_wrote_is_replaced(split):
    assert split.merge("--partial", parts=(1, 3)).returncode == 0
    refused = split.merge()
    assert refused.returncode == 2 and "is there already; give another --out, or --replace" in refused.stderr
    assert sizes(split.folder / "merged") == [1, 3, 4]
    (split.folder / "merged" / "captures").mkdir()
    assert split.merge("--replace").returncode == 0
    assert sizes(split.folder / "merged") == list(SIZES)
    assert (split.folder / "merged" / "captures").is_dir()
    inside = split.folder / "merged" / "part"
    shutil.copytree(split.folder / "merged", inside)
    refused = run("merge", inside, "--out", split.folder / "merged", "--replace")
    assert refused.returncode == 2 and "lies within --out" in refused.stderr and inside.is_dir()
    shutil.rmtree(split.folder / "merged")
    (split.folder / "merged").mkdir()
    (split.folder / "merged" / "notes").write_text("my own")
    refused = split.merge("--replace")
    assert refused.returncode == 2 and "not from a merge" in refused.stderr
    assert (split.folder / "merged" / "notes").read_text() == "my own"


def test_runs_that_were_not_split_must_not_share_cases(split, tmp_path):
    for name in ("one", "two"):
        assert split.sweep(tmp_path / name).returncode == 0
    result = run("merge", tmp_path / "one", tmp_path / "two", "--out", tmp_path / "both")
    assert result.returncode == 2 and f"is in {tmp_path / 'one'} too" in result.stderr
    result = run("merge", tmp_path / "one", tmp_path / "one", "--out", tmp_path / "both")
    assert result.returncode == 2 and "is given twice" in result.stderr
    (split.problems / "gemm.csv").write_text("network,m,n,k,count\nother,9,8,8,1\n")
    assert split.sweep(tmp_path / "three").returncode == 0
    result = run("merge", tmp_path / "one", tmp_path / "three", "--out", tmp_path / "both")
    assert result.returncode == 0, result.stderr
    assert sizes(tmp_path / "both") == [*SIZES, 9]
    with open(tmp_path / "both" / "networks.csv", newline="") as file:
        assert {row["network"] for row in csv.DictReader(file)} == {"many", "other"}


def test_an_incorrect_row_is_merged_and_said(split):
    file = split.folder / "part3" / "sweep.csv"
    file.write_text(file.read_text().replace(",ok,", ",incorrect,"))
    result = split.merge()
    assert result.returncode == 1 and "1 cases are incorrect" in result.stderr
    assert len(rows(split.folder / "merged")) == 5
