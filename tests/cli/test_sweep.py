"""A sweep on the host: its run folder, Google Benchmark's flags, and what is killed, full or in the way."""

import csv
import json
import os
import re
import resource
import signal
import subprocess

import pytest

from tests.cli.gated_runs import pack
from tests.cli.program import PROGRAM, below, needs_program, read_table, rows, run, strict, sweep

pytestmark = needs_program
MANY = 10


@pytest.fixture
def many(tmp_path):
    """Problems that take long enough to be interrupted."""
    (tmp_path / "many").mkdir()
    (tmp_path / "many/gemm.csv").write_text("network,m,n,k,count\n" + "".join(f"many,{m},64,64,1\n" for m in range(1, MANY + 1)))
    return tmp_path / "many"


def begun(problems, cases, *more):
    """A sweep that has reported so many cases."""
    process = subprocess.Popen([PROGRAM, "sweep", "--device", "host", "--problems", problems, "--networks", "all", *more], stderr=subprocess.PIPE,
                               stdout=subprocess.DEVNULL, text=True)
    for _ in range(cases):
        while not next(process.stderr).startswith("["):
            pass
    return process


def test_host_sweep_end_to_end(problems, tmp_path):
    out = tmp_path / "run"
    result = sweep(problems, out)
    assert result.returncode == 0, result.stderr
    assert "run folder:" in result.stdout and "mini" in result.stdout
    table = rows(out)
    assert len(table) == 3
    for row in table:
        assert row["status"] == "ok" and row["kind"] == "host"
        assert float(row["time_cold_us"]) > 0 and float(row["pct_of_roof"]) > 0
        assert float(row["max_rel_error"]) <= float(row["tolerance"])
    assert {row["networks"] for row in table} == {"mini:3", "mini:1", "other:1"}
    samples = [json.loads(line) for line in (out / "samples.jsonl").read_text().splitlines()]
    assert len(samples) == 3 and all(len(s["cold_us"]) >= 5 for s in samples)
    environment = json.loads((out / "env.json").read_text())
    assert environment["command_lines"][0][1] == "sweep" and environment["commit"]
    assert environment["cpu_cores"] > 0 and environment["gpu_uuid"] == "" and {row["gpu_uuid"] for row in table} == {""}

    result = run("roofline", out)
    assert result.returncode == 0, result.stderr
    assert (out / "plan.csv").read_text().splitlines()[0] == "op,dtype,problem,variant"
    points = read_table(out / "roofline.csv")
    key = "op", "variant", "dtype", "problem"
    rates = {tuple(row[name] for name in key): row["gflops"] for row in table}
    assert {tuple(point[name] for name in key): point["gflops"] for point in points} == rates
    assert all(0 < float(point["gflops"]) and 0 < float(point["attainable_gflops"]) <= float(point["ceiling_gflops"]) for point in points)

    explained = run("explain", "gemm/m=8,n=16,k=24/bf16/host", "--run", out)
    assert explained.returncode == 0 and "gemm/m=8,n=16,k=24/bf16/host" in explained.stdout, explained.stderr

    again = sweep(problems, out)
    assert again.returncode == 0 and "3 cases are already in" in again.stderr
    assert len(rows(out)) == 3
    resumed = json.loads((out / "env.json").read_text())
    assert len(resumed["command_lines"]) == 2 and resumed["time_utc"] == environment["time_utc"], "nothing was measured"

    pack(out / "samples.jsonl")
    recorded = sweep(problems, out)
    assert recorded.returncode == 2 and "its samples are packed (samples.jsonl.gz)" in recorded.stderr, recorded.stderr
    assert sweep(problems, out, "--fresh").returncode == 0 and (out / "samples.jsonl").exists() and not (out / "samples.jsonl.gz").exists()


def test_google_benchmark_flags(problems, tmp_path):
    filtered = sweep(problems, tmp_path / "b", "--benchmark_filter=k=24", "--benchmark_format=json")
    assert filtered.returncode == 0
    report = strict(filtered.stdout)["benchmarks"]
    assert len(report) == 1 and report[0]["time_unit"] == "us"
    row = rows(tmp_path / "b")[0]
    assert report[0]["real_time"] == pytest.approx(float(row["time_cold_us"]), rel=1e-3)
    assert report[0]["iterations"] == int(row["samples"])
    assert report[0]["pct_of_roof"] == pytest.approx(float(row["pct_of_roof"]), rel=1e-3)
    numbers = [name for name, text in row.items() if name not in ("samples", "warm_samples", "problem") and text.replace(".", "").isdigit()]
    assert {"flops", "bytes", "attainable_gflops", "tolerance"} <= set(numbers)
    for name in numbers:
        assert report[0][name] == pytest.approx(float(row[name]), rel=1e-3), name
    assert "dram_read_bytes" not in report[0], "not measured on a host: no number stands for it"


@pytest.mark.parametrize("filter, count", [
    ("k=24", 1), ("host$", 3), ("^gemm/m=16", 1), ("-m=16", 2), ("all", 3), ("k=(8|24)/", 3), (r"m=\d,", 2), ("-host$", 0)])
def test_filter_means_the_same_to_list_and_run(filter, count, problems, tmp_path):
    flag = f"--benchmark_filter={filter}"
    listed = sweep(problems, tmp_path / "a", flag, "--benchmark_list_tests=true")
    assert not (tmp_path / "a").exists()
    ran = sweep(problems, tmp_path / "b", flag, "--benchmark_list_tests=false")
    if count == 0:
        assert listed.returncode == ran.returncode == 2
        assert "no case matches --benchmark_filter" in listed.stderr and not (tmp_path / "b").exists()
        return
    assert listed.returncode == ran.returncode == 0, ran.stderr
    names = ["/".join(row[column] for column in ("op", "problem", "dtype", "variant")) for row in rows(tmp_path / "b")]
    assert listed.stdout.splitlines() == names and len(names) == count


def test_rows_that_are_not_ok_are_errors_in_the_json(problems, tmp_path):
    result = sweep(problems, tmp_path / "a", "--variants", "naive,host", "--benchmark_format=json")
    entries = json.loads(result.stdout)["benchmarks"]
    assert [entry["name"].split("/")[1:4] for entry in entries] == [[row["problem"], row["dtype"], row["variant"]] for row in rows(tmp_path / "a")]
    assert len(entries) == 6 and sum("error_occurred" in entry for entry in entries) == 3, "each case of a problem says its own"
    for entry in (entry for entry in entries if "/naive/" in entry["name"]):
        assert entry["error_occurred"] and entry["error_message"].startswith("no_device: ")
        assert "gflops" not in entry


@pytest.mark.parametrize("interleaving", ["false", "true"])
def test_repetitions_and_output_file(interleaving, problems, tmp_path):
    report = tmp_path / "report.json"
    result = sweep(problems, tmp_path / "a", "--benchmark_repetitions=2", f"--benchmark_enable_random_interleaving={interleaving}", f"--benchmark_out={report}")
    assert result.returncode == 0, result.stderr
    assert len(rows(tmp_path / "a")) == 3  # the run folder has each case once
    runs = [b for b in strict(report.read_text())["benchmarks"] if b["run_type"] == "iteration"]
    assert len(runs) == 6

    spent = sweep(problems, tmp_path / "b", "--benchmark_repetitions=3", "--budget", "1e-9")
    assert spent.returncode == 0 and "3 cases left by --budget" in spent.stderr, spent.stderr

    # Measured before, so there is one repetition of each case to report.
    again = sweep(problems, tmp_path / "a", "--benchmark_repetitions=2", f"--benchmark_out={report}")
    assert again.returncode == 0, again.stderr
    runs = [b for b in strict(report.read_text())["benchmarks"] if b["run_type"] == "iteration"]
    assert sum("error_occurred" not in b for b in runs) == 3
    assert all("measured before" in b["error_message"] for b in runs if "error_occurred" in b)


@pytest.mark.parametrize("format", ["json", "csv", "console"])
def test_the_output_file_has_all_cases_however_often_the_sweep_was_resumed(format, problems, tmp_path):
    """Rows of the folder are reported as they were when they were measured."""
    def report(name, *more):
        out = tmp_path / name
        result = sweep(problems, tmp_path / "a", f"--benchmark_out={out}", f"--benchmark_out_format={format}", *more)
        assert result.returncode == 0, result.stderr
        assert "run folder:" in result.stdout, "our own table is still printed"
        return out.read_text()

    report("first", "--benchmark_filter=k=24")
    (tmp_path / "stale").write_text("of long ago")
    measured, again = report("stale"), report("again")  # two measured now, one before; then none
    assert "Wrote" not in measured and "of long ago" not in measured
    displayed = sweep(problems, tmp_path / "a", f"--benchmark_format={format}")
    assert displayed.returncode == 0
    if format == "console":
        assert [again.count(f"k={k}/bf16/host") for k in (24, 16, 8)] == [1, 0, 2]
        return
    if format == "json":
        cases = [[{k: v for k, v in b.items() if k != "cpu_time"} for b in strict(text)["benchmarks"]] for text in (measured, again, displayed.stdout)]
        assert [b["iterations"] for b in cases[0]] == [int(row["samples"]) for row in rows(tmp_path / "a")]
    else:
        cases = [[{k: v for k, v in line.items() if k != "cpu_time"} for line in csv.DictReader(text.splitlines())] for text in (measured, again, displayed.stdout)]
    assert len(cases[0]) == 3
    for one, other in zip(cases[0], cases[1]):  # the row in the folder is rounded
        assert one.keys() == other.keys() and one["name"] == other["name"] and one["iterations"] == other["iterations"]
        for name in ("real_time", "gflops", "flops"):
            assert float(one[name]) == pytest.approx(float(other[name]), rel=1e-4)
    assert cases[1] == cases[2]


@pytest.mark.parametrize("name", ["", "sweep.csv", "samples.jsonl"])
def test_an_output_file_may_not_be_one_of_the_run(problems, tmp_path, name):
    assert sweep(problems, tmp_path / "a").returncode == 0
    before = {file: file.read_bytes() for file in (tmp_path / "a").iterdir() if file.is_file()}
    for run_folder in ("a", *([] if name else ["new"])):
        result = sweep(problems, tmp_path / run_folder, f"--benchmark_out={tmp_path / run_folder / name}".rstrip("/"))
        assert result.returncode == 2 and "--benchmark_out" in result.stderr, result.stderr
    assert {file: file.read_bytes() for file in before} == before and not (tmp_path / "new").is_file()


def test_an_output_file_that_cannot_be_written_whole_is_an_error(problems, tmp_path):
    """A disk that fills up, played by the limit on the size of a file."""
    report = tmp_path / "report.json"
    assert sweep(problems, tmp_path / "a", f"--benchmark_out={report}").returncode == 0
    most = report.stat().st_size - 64  # the machine's load is in it, in more or fewer digits
    report.write_text("of before")
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    result = sweep(problems, tmp_path / "a", f"--benchmark_out={report}", preexec_fn=limit)
    assert result.returncode == 2 and "report.json: cannot be written: File too large" in result.stderr, result.stderr
    assert report.read_text() == "of before"
    assert not list(tmp_path.glob("*.partial"))


def test_a_run_below_runs_ends_with_its_place_under_the_roof(problems, tmp_path):
    result = below(tmp_path / "runs", problems)
    assert result.returncode == 0, result.stderr
    [folder] = (tmp_path / "runs/host").iterdir()
    assert result.stdout.count("mini") and "\nceiling dram_copy" in result.stdout and f"wrote {folder}/roofline.csv" in result.stdout
    assert {"roofline.csv", "report.html", "plan.csv", "totals.csv"} <= {file.name for file in folder.iterdir()}
    assert not (folder / ".unfinished").exists() and str(folder) in result.stderr
    report = below(tmp_path / "runs", problems, "--benchmark_format=json")
    assert report.returncode == 0 and len(strict(report.stdout)["benchmarks"]) == 3, "its own display alone"
    assert len(list((tmp_path / "runs/host").iterdir())) == 2, "what was finished is not resumed"


def test_the_last_place_of_runs_counts(problems, tmp_path):
    """scripts/sweep and run.sh give theirs in front of what a user gives."""
    assert below(tmp_path / "scripts", problems, "--runs", tmp_path / "mine").returncode == 0
    assert (tmp_path / "mine/host").is_dir() and not (tmp_path / "scripts").exists()


def test_what_is_refused_leaves_no_run(problems, tmp_path):
    assert below(tmp_path / "runs", problems, "--opps").returncode == 2
    assert below(tmp_path / "runs", problems, "--ops", "conv2d").returncode == 2
    assert below(tmp_path / "runs", problems, "--benchmark_list_tests").returncode == 0
    assert not (tmp_path / "runs").exists()


def test_the_same_command_resumes_below_runs(many, tmp_path):
    runs = tmp_path / "runs"
    with begun(many, 5, "--runs", runs) as process:
        process.kill()
    [folder] = (runs / "host").iterdir()
    note = (folder / ".unfinished").read_text()

    other = below(runs, many, "--benchmark_filter=m=7,")
    assert other.returncode == 0 and "resuming" not in other.stderr, "another command"
    [another] = set((runs / "host").iterdir()) - {folder}
    assert len(rows(another)) == 1
    newest = another.with_name("9999-01-01_00-00-00")
    folder.rename(newest)
    fresh = below(runs, many, "--fresh", "--budget", "0.001")
    assert fresh.returncode == 0 and "resuming" not in fresh.stderr and len(rows(newest)) < MANY
    refused = below(runs, many, "--out", newest, "--shard", "1/2")
    assert refused.returncode == 2 and (newest / ".unfinished").read_text() == note, "what is refused changes no note"
    runs, newest = runs.rename(tmp_path / "moved"), tmp_path / "moved/host" / newest.name
    resumed = below(runs, many)
    assert resumed.returncode == 0 and f"resuming {newest} (--fresh begins another)" in resumed.stderr, resumed.stderr
    assert len(rows(newest)) == MANY and not (newest / ".unfinished").exists()

    (newest / ".unfinished").write_text(note.replace('["', '["0', 1))
    assert "resuming" not in below(runs, many, "--budget", "0.001").stderr, "of another build"
    (newest / ".unfinished").unlink()
    os.mkfifo(newest / ".unfinished")
    assert "resuming" not in below(runs, many, "--budget", "0.001").stderr, "a pipe holds no command"
    given = below(runs, many, "--out", tmp_path / "out", "--benchmark_filter=m=7,")
    assert given.returncode == 0 and len(rows(tmp_path / "out")) == 1 and (tmp_path / "out/roofline.csv").exists()


@pytest.mark.parametrize("more", [[], ["--fresh"]])
def test_two_sweeps_in_one_folder_at_once(more, many, tmp_path):
    out = tmp_path / "run"
    first = begun(many, 1, "--out", out)
    try:
        first.send_signal(signal.SIGSTOP)  # so that what is there can be compared byte for byte, once it stands
        assert os.waitid(os.P_PID, first.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT).si_code == os.CLD_STOPPED
        before = {file.name: file.read_bytes() for file in out.iterdir()}
        second = sweep(many, out, *more)
        assert second.returncode == 2
        assert re.search(rf"run: another sweep is writing there \(host \S+, process {first.pid}\)", second.stderr), second.stderr
        assert {file.name: file.read_bytes() for file in out.iterdir()} == before
    finally:
        first.send_signal(signal.SIGCONT)
    first.communicate()
    assert first.returncode == 0 and len(rows(out)) == MANY


def test_a_folder_of_several_gpus_is_not_a_run_folder(problems, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "gpus.csv").write_text("folder\n")
    result = sweep(problems, tmp_path / "run")
    assert result.returncode == 2 and "holds the run folders of several GPUs" in result.stderr


def test_all_gpus_of_a_machine_without_one(tmp_path):
    if "no GPU" not in run("devices").stdout:
        pytest.skip("there is a GPU")
    result = run("sweep", "--device", "all", cwd=tmp_path)
    assert result.returncode == 2 and "--device all: " in result.stderr
    assert not any(tmp_path.iterdir())


def test_unwritable_place(problems, tmp_path):
    (tmp_path / "file").write_text("in the way")
    result = sweep(problems, tmp_path / "file" / "run")
    assert result.returncode == 2 and "cannot be made" in result.stderr


def test_networks_are_rows_of_a_sweep(tmp_path):
    out = tmp_path / "run"
    command = ["sweep", "--device", "host", "--ops", "network", "--networks", "digits-b1", "--out", out]
    for _ in range(3):  # launches of milliseconds: beside other programs there may be no sample that had its cores
        result = run(*command, "--fresh")
        assert result.returncode == 0, result.stderr
        [row] = rows(out)
        if row["throttle"] != "run_queue":
            break
    else:
        assert row["status"] == "throttled" and "waited for a core" in row["reason"]
        pytest.skip("other programs keep the cores")
    assert (row["op"], row["problem"], row["variant"], row["kind"], row["status"]) == ("network", "name=digits,batch=1", "plan_own", "network", "ok")
    assert row["networks"] == "digits-b1:1" and row["reason"].startswith("nodes:")
    assert float(row["time_cold_us"]) > 0 and float(row["time_warm_us"]) > 0 and float(row["pct_of_roof"]) > 0
    assert 0 < float(row["max_rel_error"]) <= float(row["tolerance"])
    assert "1 cases are already in" in run(*command).stderr
    drawn = run("roofline", out)
    assert drawn.returncode == 0 and "launches have a row" in drawn.stdout
    [total] = [line for line in read_table(out / "totals.csv") if line["choice"] == "plan_own"]
    asked = sum(int(line["count"]) for line in csv.DictReader(run("problems", "digits").stdout.splitlines()))
    assert (int(total["launches"]), total["covered"], total["over_launches"]) == (asked, "0", ""), "no node has a row of its own"
    assert (out / "plan.csv").read_text() == "op,dtype,problem,variant\n"
    gate = run("gate", "--baseline", out, "--candidate", out)
    assert gate.returncode == 0, gate.stderr
    assert "1" in gate.stdout and "network" in gate.stdout + (out / "sweep.csv").read_text()


def test_the_elements_that_a_row_is_verified_on_are_drawn_anew():
    question = json.dumps({"ask": "ready", "variant": "host", "dtype": "fp32", "problem": {"op": "gemm", "problem": "m=1024,n=512,k=512"}}) + "\n"
    answers = {run("worker", "--device", "host", input=question).stdout.splitlines()[-1] for _ in range(2)}
    assert len(answers) == 2 and all("verified on " in answer for answer in answers), "the same inputs, another error"
