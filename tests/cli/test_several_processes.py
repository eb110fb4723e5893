"""`sweep --processes`: several sweeps as one run, and what is refused, cut or stopped."""

import json
import signal
import subprocess

from tests.cli.program import PROGRAM, below, needs_program, rows, run, sweep

pytestmark = needs_program


def test_several_processes_make_one_run(problems, tmp_path):
    out = tmp_path / "run"
    result = sweep(problems, out, "--processes", "3")
    assert result.returncode == 0, result.stderr
    table = rows(out)
    assert len(table) == 3 and {row["processes"] for row in table} == {"3"}
    assert "process-3 | " in result.stderr and result.stdout.count("run folder:") == 1 and f"run folder: {out}" in result.stdout
    samples = [json.loads(line) for line in (out / "samples.jsonl").read_text().splitlines()]
    ones = [[json.loads(line) for line in (out / f"process-{i}/samples.jsonl").read_text().splitlines()] for i in (1, 2, 3)]
    for pooled, *single in zip(samples, *ones):
        assert pooled["cold_us"] == [us for one in single for us in one["cold_us"]]
    assert len(json.loads((out / "env.json").read_text())["merged_from"]) == 3
    assert run("gate", "--baseline", out, "--candidate", out, "--strict").returncode == 0

    lines = (out / "process-2/sweep.csv").read_text().splitlines()
    (out / "process-2/sweep.csv").write_text("\n".join(lines[:-1]) + "\n")  # as if it was killed
    (out / "sweep.csv").unlink()
    again = sweep(problems, out, "--processes", "3")
    assert again.returncode == 0 and "2 cases are already in" in again.stderr and len(rows(out)) == 3, again.stderr

    plain = sweep(problems, out)
    assert plain.returncode == 2 and "holds the run folders of several processes" in plain.stderr, plain.stderr
    fewer = sweep(problems, out, "--processes", "2")
    assert fewer.returncode == 2 and "has more than the 2 processes" in fewer.stderr
    assert len(rows(out)) == 3, "what is refused changes nothing"


def test_a_process_whose_samples_were_cut(problems, tmp_path):
    """What lost its samples is measured again; where all are gone, the message says what to remove."""
    out = tmp_path / "run"
    assert sweep(problems, out, "--processes", "2").returncode == 0
    samples = out / "process-2/samples.jsonl"
    samples.write_text(samples.read_text()[:-9])
    again = sweep(problems, out, "--processes", "2")
    assert again.returncode == 0 and f"{samples}: was cut; 1 rows without their samples are measured again" in again.stderr, again.stderr
    assert len(samples.read_text().splitlines()) == 3
    samples.unlink()
    gone = sweep(problems, out, "--processes", "2")
    assert gone.returncode == 2 and "process-2: samples.jsonl lacks the samples of gemm" in gone.stderr, gone.stderr
    assert "a process-N folder that is removed is measured anew by the same command" in gone.stderr


def test_what_several_processes_refuse(problems, tmp_path):
    single = tmp_path / "single"
    assert sweep(problems, single).returncode == 0
    before = (single / "sweep.csv").read_text()
    refused = sweep(problems, single, "--processes", "2")
    assert refused.returncode == 2 and "is the run folder of one process" in refused.stderr
    assert (single / "sweep.csv").read_text() == before and not (single / "process-1").exists()
    for more, words in (["--budget", "5"], "--budget"), (["--shard", "1/2"], "--shard"), (["--benchmark_format=json"], "--benchmark_format"):
        refused = sweep(problems, tmp_path / "out", "--processes", "2", *more)
        assert refused.returncode == 2 and words in refused.stderr and not (tmp_path / "out").exists(), refused.stderr
    for name in "gpus.csv", "samples.jsonl":
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text("mine\n")
        refused = sweep(problems, tmp_path / name, "--processes", "2")
        assert refused.returncode == 2 and ("several GPUs" if name == "gpus.csv" else "it has samples.jsonl") in refused.stderr, refused.stderr
        assert (tmp_path / name / name).read_text() == "mine\n"
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    assert sweep(problems, tmp_path / "link", "--processes", "2", "--benchmark_filter=nothing").returncode == 2 and (tmp_path / "link").is_symlink()
    for number in "0", "65", "x":
        assert sweep(problems, tmp_path / "out", "--processes", number).returncode == 2
    refused = below(tmp_path / "runs", problems, "--ops", "conv2d", "--processes", "2")
    assert refused.returncode == 2 and "the chosen networks have no conv2d" in refused.stderr
    assert not any((tmp_path / "runs/host").iterdir())


def test_several_processes_that_are_stopped(tmp_path):
    (tmp_path / "problems").mkdir()
    lines = ["network,m,n,k,count"] + [f"many,{m},64,64,1" for m in range(1, 21)]
    (tmp_path / "problems/gemm.csv").write_text("\n".join(lines) + "\n")
    runs = tmp_path / "runs"
    command = [PROGRAM, "sweep", "--device", "host", "--problems", tmp_path / "problems", "--networks", "all", "--runs", runs, "--processes", "2"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    for line in process.stderr:
        if line.startswith("process-2 | [ 5/"):
            process.terminate()
            break
    rest = process.stderr.read()
    assert process.wait() == -signal.SIGTERM and "the same command with --out resumes" in rest, rest
    [folder] = (runs / "host").iterdir()
    assert not (folder / "sweep.csv").exists() and len(rows(folder / "process-1")) == 20
    resumed = below(runs, tmp_path / "problems", "--processes", "2")
    assert resumed.returncode == 0 and f"resuming {folder}" in resumed.stderr and "20 cases are already in" in resumed.stderr
    assert len(rows(folder)) == 20 and (folder / "report.html").exists() and not (folder / ".unfinished").exists()


def test_a_fresh_start_that_is_cut_short_leaves_no_old_process(problems, tmp_path):
    out = tmp_path / "run"
    (problems / "gemm.csv").write_text("\n".join(["network,m,n,k,count"] + [f"many,{m},64,64,1" for m in range(1, 9)]) + "\n")
    assert sweep(problems, out, "--processes", "2").returncode == 0
    old = (out / "process-2/samples.jsonl").read_text()
    (out / "process-2/notes").write_text("mine\n")
    process = subprocess.Popen([PROGRAM, "sweep", "--device", "host", "--problems", problems, "--networks", "all", "--out", out, "--processes", "2", "--fresh"],
                               stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    for line in process.stderr:
        if line.startswith("process-1 | [1/"):
            process.terminate()
            break
    process.stderr.read()
    assert process.wait() == -signal.SIGTERM
    assert not (out / "process-2/sweep.csv").exists() and not (out / "process-2/samples.jsonl").exists()
    assert (out / "process-2/notes").read_text() == "mine\n"
    resumed = sweep(problems, out, "--processes", "2")
    assert resumed.returncode == 0 and len(rows(out)) == 8, resumed.stderr
    new = (out / "process-2/samples.jsonl").read_text()
    assert len(new.splitlines()) == 8 and not set(new.splitlines()) & set(old.splitlines())


def test_processes_of_other_cases_are_noticed_before_anything_is_measured(problems, tmp_path):
    out = tmp_path / "run"
    assert sweep(problems, out, "--processes", "2", "--dtypes", "bf16").returncode == 0
    before = {path: path.read_bytes() for path in out.rglob("*.csv")}
    refused = sweep(problems, out, "--processes", "3", "--dtypes", "fp32")  # the third would have these alone
    assert refused.returncode == 2 and "process-1: has a case that this command does not choose and process-3 lacks, gemm/" in refused.stderr, refused.stderr
    assert {path: path.read_bytes() for path in out.rglob("*.csv")} == before and not (out / "process-3").exists()
    lines = (out / "process-2/sweep.csv").read_text().splitlines()
    (out / "process-2/sweep.csv").write_text("\n".join(lines[:-1]) + "\n")  # as if it was killed
    refused = sweep(problems, out, "--processes", "2", "--dtypes", "fp32")
    assert refused.returncode == 2 and "process-2: was to have a case that this command does not choose, gemm/" in refused.stderr, refused.stderr
    assert sweep(problems, out, "--processes", "2", "--dtypes", "bf16").returncode == 0
    more = sweep(problems, out, "--processes", "2", "--dtypes", "fp32")
    assert more.returncode == 0 and {row["dtype"] for row in rows(out)} == {"bf16", "fp32"}, more.stderr
    before = {path: path.read_bytes() for path in out.rglob("*.csv")}
    assert sweep(problems, out, "--processes", "2", "--dtypes", "fp32", "--fresh", "--benchmark_filter=nothing").returncode == 2
    assert {path: path.read_bytes() for path in out.rglob("*.csv")} == before, "what is refused removes nothing"


def test_no_other_run_takes_the_place_of_several_processes(problems, tmp_path):
    """Their folders would lie beside a run that is not theirs."""
    out, other = tmp_path / "run", tmp_path / "other"
    assert sweep(problems, out, "--processes", "2").returncode == 0 and sweep(problems, other).returncode == 0
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for arguments in (["gate", "--baseline", out, "--candidate", other, "--accept", "--force"], ["merge", other, "--out", out, "--replace"]):
        refused = run(*arguments)
        assert refused.returncode == 2 and "is the run of several processes, whose folders (process-1 and others) are not of the run" in refused.stderr, refused.stderr
        assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert run("gate", "--baseline", other, "--candidate", out, "--accept", "--force").returncode == 0, "without the folders"
    assert not (other / "process-1").exists()
