"""The program as a user meets it on a machine without a GPU: exit codes, messages, and a sweep that was killed."""

import csv
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

PROGRAM = os.environ.get("NOISEFLOOR_BINARY", "")
pytestmark = pytest.mark.skipif(not Path(PROGRAM).is_file(), reason="NOISEFLOOR_BINARY names no program")

SMALL = "network,m,n,k,count\nmini,8,16,24,3\nmini,16,16,8,1\nother,4,8,8,1\n"


@pytest.fixture
def problems(tmp_path):
    folder = tmp_path / "problems"
    folder.mkdir()
    (folder / "gemm.csv").write_text(SMALL)
    return folder


def run(*arguments, **kwargs):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=300, **kwargs)


def sweep(problems, out, *more, **kwargs):
    return run("sweep", "--device", "host", "--problems", problems, "--networks", "all", "--out", out, *more, **kwargs)


def strict(text):
    """JSON as it is defined: NaN and Infinity are not numbers there."""
    def refuse(name):
        raise AssertionError(f"{name} in JSON")
    return json.loads(text, parse_constant=refuse)


def rows(folder):
    with open(folder / "sweep.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["sweeep"], "did you mean 'sweep'"),
        (["sweep", "--opz", "gemm"], "did you mean '--ops'"),
        (["sweep", "--ops", "gem"], "unknown op 'gem'; did you mean 'gemm'"),
        (["sweep", "--device", "host", "--networks", "adm64-b2"], "unknown network 'adm64-b2'; did you mean 'adm64-b"),
        (["sweep", "--device", "host", "--variants", "naiv"], "unknown variant 'naiv'; did you mean 'naive'"),
        (["sweep", "--device", "host", "--dtypes", "bf17"], "unknown dtype 'bf17'; did you mean 'bf16'"),
        (["sweep", "--device", "host", "--benchmark_filter=("], "is not a regular expression"),
        (["sweep", "--device", "host", "--benchmark_filter=nothing_is_named_so"], "no case matches"),
        (["sweep", "--device", "host", "--benchmark_flter=x"], "benchmark_flter"),
        (["sweep", "--device", "host", "--benchmark_format=foo"], "--benchmark_format is 'foo', not one of console"),
        (["sweep", "--device", "host", "--benchmark_out_format=xml"], "--benchmark_out_format is 'xml', not one of"),
        (["sweep", "--device", "host", "--benchmark_color=mauve"], "--benchmark_color is 'mauve', not one of"),
        (["sweep", "--device", "host", "--benchmark_time_unit=h"], "--benchmark_time_unit is 'h', not one of"),
        (["sweep", "--device", "host", "--benchmark_list_tests=perhaps"], "--benchmark_list_tests is 'perhaps', not"),
        (["sweep", "--device", "host", "--benchmark_out=nowhere/x"], "--benchmark_out nowhere/x: there is no folder nowhere"),
        (["sweep", "--device", "host", "--benchmark_out=/dev/full"], "--benchmark_out /dev/full: is not a regular file"),
        (["sweep", "--device", "host", "--benchmark_repetitions=0"], "--benchmark_repetitions is '0', not a whole number from 1"),
        (["sweep", "--device", "host", "--benchmark_repetitions=many"], "--benchmark_repetitions is 'many', not a whole number"),
        (["sweep", "--device", "seven"], "not 'host' or a device number"),
        (["sweep", "--device", "all", "--benchmark_out=x"], "every GPU has a process of its own"),
        (["sweep", "--problems", "no-such-folder"], "no such folder"),
        (["sweep", "--counters", "maybe"], "maybe"),
        (["sweep", "--device", "host", "--counters", "require"], "counters"),
        (["run", "gem", "--problem", "m=1"], "unknown op 'gem'; did you mean 'gemm'"),
        (["run", "gemm", "--problem", "m=1,n=1"], "field 'k' is missing"),
        (["run", "gemm", "--problem", "m=1,n=1,k=0"], "outside 1 to"),
        (["run", "gemm", "--problem", "m=1,n=1,k=1", "--dtype", "fp8"], "has no dtype 'fp8'"),
        (["run", "gemm", "--problem", "m=1,n=1,k=1", "--variant", "hots"], "did you mean 'host'"),
        (["run", "gemm", "--problem", "m=1,n=1,k=1", "--device", "host", "--benchmark_filter=x"], "belong to"),
        (["roofline", "no-such-folder"], "no-such-folder: no such folder; give the folder of a run"),
        (["list", "opps"], "opps"),
        (["tune", "groupnorm"], "--out is required"),
        (["tune", "gem", "--out", "times.csv"], "unknown op 'gem'; did you mean 'gemm'"),
        (["tune", "gemm", "--out", "times.csv"], "gemm offers no choices to tune; these do: groupnorm ptx_sm90a"),
        (["tune", "groupnorm", "--variant", "tiled", "--out", "times.csv"], "groupnorm tiled offers no choices to tune; these do: groupnorm ptx_sm90a"),
        (["tune", "groupnorm", "--variant", "ptx_sm90", "--out", "times.csv"], "did you mean 'ptx_sm90a'"),
        (["tune", "groupnorm", "--dtype", "bf17", "--out", "times.csv"], "has no dtype 'bf17'"),
        (["tune", "groupnorm", "--networks", "adm64-b2", "--out", "times.csv"], "unknown network 'adm64-b2'; did you mean 'adm64-b"),
        (["tune", "groupnorm", "--networks", "digits-b1", "--out", "times.csv"], "these networks have no groupnorm"),
        (["tune", "groupnorm", "--problems", "no-such-folder", "--out", "times.csv"], "no such folder"),
        (["tune", "groupnorm", "--device", "host", "--out", "no-such-folder/times.csv"], "--out"),
        (["tune", "groupnorm", "--device", "host", "--out", "times.csv"], "groupnorm ptx_sm90a: needs a CUDA device; this is "),
        ([], "subcommand"),
    ],
)
def test_bad_input_is_named_and_exits_2(arguments, says, tmp_path):
    result = run(*arguments, cwd=tmp_path)
    # Relative problem folders are found from the program, so the working directory does not matter.
    assert result.returncode == 2, result
    assert says in result.stderr + result.stdout
    assert "Traceback" not in result.stderr and "terminate" not in result.stderr
    if "--counters" not in arguments:  # whether they can be had is known only once the run folder is there
        assert not any(tmp_path.iterdir())


def test_all_gpus_of_a_machine_without_one(tmp_path):
    if "no GPU" not in run("devices").stdout:
        pytest.skip("there is a GPU")
    result = run("sweep", "--device", "all", cwd=tmp_path)
    assert result.returncode == 2 and "--device all: " in result.stderr
    assert not any(tmp_path.iterdir())


def test_a_folder_of_several_gpus_is_no_run_folder(problems, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "gpus.csv").write_text("folder\n")
    result = sweep(problems, tmp_path / "run")
    assert result.returncode == 2 and "holds the run folders of several GPUs" in result.stderr


@pytest.mark.parametrize("command", ["devices", "list", "sweep", "run", "ceilings", "roofline", "merge", "tune"])
def test_help(command):
    result = run(command, "--help")
    assert result.returncode == 0
    assert "noisefloor" in run("--help").stdout


@pytest.mark.skipif(not shutil.which("ldd"), reason="needs ldd")
def test_starts_without_the_vendors_libraries():
    needed = subprocess.run(["ldd", PROGRAM], capture_output=True, text=True).stdout
    for library in ("libcupti", "libcublas", "libcudnn", "libcuda.so", "libnvidia-ml"):
        assert library not in needed


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

    result = run("roofline", out)
    assert result.returncode == 0, result.stderr
    assert (out / "plan.csv").read_text().splitlines()[0] == "op,dtype,problem,variant"
    assert len((out / "roofline.csv").read_text().splitlines()) == 4

    again = sweep(problems, out)
    assert again.returncode == 0 and "3 cases are already in" in again.stderr
    assert len(rows(out)) == 3
    assert len(json.loads((out / "env.json").read_text())["command_lines"]) == 2


def test_google_benchmark_flags(problems, tmp_path):
    listed = sweep(problems, tmp_path / "a", "--benchmark_list_tests")
    assert listed.returncode == 0
    assert listed.stdout.splitlines()[0] == "gemm/m=8,n=16,k=24/bf16/host"
    assert not (tmp_path / "a").exists()

    filtered = sweep(problems, tmp_path / "b", "--benchmark_filter=k=24", "--benchmark_format=json")
    assert filtered.returncode == 0
    report = strict(filtered.stdout)["benchmarks"]
    assert len(report) == 1 and report[0]["time_unit"] == "us"
    row = rows(tmp_path / "b")[0]
    assert report[0]["real_time"] == pytest.approx(float(row["time_cold_us"]), rel=1e-3)
    assert report[0]["iterations"] == int(row["samples"])
    assert report[0]["pct_of_roof"] == pytest.approx(float(row["pct_of_roof"]), rel=1e-3)
    numbers = [name for name, text in row.items() if name not in ("samples", "problem") and text.replace(".", "").isdigit()]
    assert {"flops", "bytes", "attainable_gflops", "tolerance"} <= set(numbers)
    for name in numbers:
        assert report[0][name] == pytest.approx(float(row[name]), rel=1e-3), name
    assert "dram_read_bytes" not in report[0], "not measured on a host: no number stands for it"


@pytest.mark.parametrize(
    "filter, count",
    [("k=24", 1), ("host$", 3), ("^gemm/m=16", 1), ("-m=16", 2), ("all", 3), ("", 3), ("k=(8|24)/", 3), ("-host$", 0)],
)
def test_filter_means_the_same_to_list_and_run(filter, count, problems, tmp_path):
    flag = f"--benchmark_filter={filter}"
    listed = sweep(problems, tmp_path / "a", flag, "--benchmark_list_tests=true")
    ran = sweep(problems, tmp_path / "b", flag, "--benchmark_list_tests=false")
    if count == 0:
        assert listed.returncode == ran.returncode == 2
        assert "no case matches --benchmark_filter" in listed.stderr and not (tmp_path / "b").exists()
        return
    assert listed.returncode == ran.returncode == 0, ran.stderr
    names = ["/".join(row[column] for column in ("op", "problem", "dtype", "variant")) for row in rows(tmp_path / "b")]
    assert listed.stdout.splitlines() == names and len(names) == count


def test_rows_that_are_not_ok_are_errors_in_the_json(problems, tmp_path):
    result = sweep(problems, tmp_path / "a", "--variants", "naive", "--benchmark_format=json")
    entries = json.loads(result.stdout)["benchmarks"]
    assert len(entries) == 3
    for entry in entries:
        assert entry["error_occurred"] and entry["error_message"].startswith("no_device: ")
        assert "gflops" not in entry


def test_repetitions_and_output_file(problems, tmp_path):
    report = tmp_path / "report.json"
    result = sweep(problems, tmp_path / "a", "--benchmark_repetitions=2", f"--benchmark_out={report}")
    assert result.returncode == 0, result.stderr
    assert len(rows(tmp_path / "a")) == 3  # the run folder has each case once
    runs = [b for b in strict(report.read_text())["benchmarks"] if b["run_type"] == "iteration"]
    assert len(runs) == 6

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


def test_an_output_file_that_cannot_be_written_whole_is_an_error(problems, tmp_path):
    """A disk that fills up, played by the limit on the size of a file."""
    report = tmp_path / "report.json"
    assert sweep(problems, tmp_path / "a", f"--benchmark_out={report}").returncode == 0
    most = report.stat().st_size - 1
    report.write_text("of before")
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    result = sweep(problems, tmp_path / "a", f"--benchmark_out={report}", preexec_fn=limit)
    assert result.returncode == 2 and "report.json.partial: cannot be written: File too large" in re.sub(r"\.\d+\.", ".", result.stderr), result.stderr
    assert report.read_text() == "of before"
    assert not list(tmp_path.glob("*.partial"))


def test_killed_sweep_loses_at_most_the_case_in_flight(tmp_path):
    problems = tmp_path / "problems"
    problems.mkdir()
    lines = ["network,m,n,k,count"] + [f"many,{m},64,64,1" for m in range(1, 41)]
    (problems / "gemm.csv").write_text("\n".join(lines) + "\n")
    out = tmp_path / "run"
    process = subprocess.Popen([PROGRAM, "sweep", "--device", "host", "--problems", problems, "--networks", "all", "--out", out],
                               stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    reported = 0
    for line in process.stderr:
        reported += line.startswith("[")
        if reported == 5:
            process.send_signal(signal.SIGKILL)
            break
    process.wait()
    time.sleep(0.1)
    finished = rows(out)
    assert len(finished) >= reported
    result = sweep(problems, out)
    assert result.returncode == 0, result.stderr
    assert f"{len(finished)} cases are already in" in result.stderr
    table = rows(out)
    assert len(table) == 40 and len({row["problem"] for row in table}) == 40


@pytest.mark.parametrize("more", [[], ["--fresh"]])
def test_two_sweeps_in_one_folder_at_once(more, tmp_path):
    problems = tmp_path / "problems"
    problems.mkdir()
    lines = ["network,m,n,k,count"] + [f"many,{m},64,64,1" for m in range(1, 41)]
    (problems / "gemm.csv").write_text("\n".join(lines) + "\n")
    out = tmp_path / "run"
    first = subprocess.Popen([PROGRAM, "sweep", "--device", "host", "--problems", problems, "--networks", "all", "--out", out],
                             stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        while not first.stderr.readline().startswith("["):
            assert first.poll() is None
        first.send_signal(signal.SIGSTOP)  # so that what is there can be compared byte for byte
        before = {file.name: file.read_bytes() for file in out.iterdir()}
        second = sweep(problems, out, *more)
        assert second.returncode == 2
        assert re.search(rf"run: another sweep is writing there \(host \S+, process {first.pid}\)", second.stderr), second.stderr
        assert {file.name: file.read_bytes() for file in out.iterdir()} == before
    finally:
        first.send_signal(signal.SIGCONT)
    first.communicate()
    assert first.returncode == 0 and len(rows(out)) == 40


def test_broken_problem_file_is_refused_before_anything_runs(problems, tmp_path):
    (problems / "gemm.csv").write_text(SMALL + "mini,8,16,many,1\n")
    result = sweep(problems, tmp_path / "run")
    assert result.returncode == 2
    assert "gemm.csv:5: problem: field 'k' is 'many'" in result.stderr
    assert not (tmp_path / "run").exists()


def test_run_folder_of_another_build_is_left_alone(problems, tmp_path):
    out = tmp_path / "run"
    assert sweep(problems, out).returncode == 0
    text = (out / "sweep.csv").read_text()
    commit = json.loads((out / "env.json").read_text())["commit"]
    (out / "sweep.csv").write_text(text.replace(f",{commit}\n", ",0123456789ab\n"))
    before = (out / "sweep.csv").read_text()
    result = sweep(problems, out)
    assert result.returncode == 2 and "holds rows of commit 0123456789ab" in result.stderr
    assert (out / "sweep.csv").read_text() == before
    assert sweep(problems, out, "--fresh").returncode == 0


@pytest.mark.skipif(not (shutil.which("git") and shutil.which("cmake")), reason="needs git and cmake")
def test_every_dirty_tree_is_a_build_of_its_own(tmp_path):
    root = Path(__file__).parents[2]
    tree = tmp_path / "tree"
    (tree / "bench" / "platform").mkdir(parents=True)
    (tree / "bench" / "platform" / "build_info.cpp.in").write_text("@COMMIT@")
    kernel = tree / "kernel.cu"
    kernel.write_text("one\n")

    def git(*arguments):
        identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
        return subprocess.run(["git", "-C", tree, *identity, *arguments], check=True, capture_output=True, text=True).stdout

    def commit():
        script = root / "scripts" / "cmake" / "build_info.cmake"
        output = tmp_path / "build_info.cpp"
        subprocess.run(["cmake", "-D", f"SOURCE={tree}", "-D", f"OUTPUT={output}", "-P", script], check=True)
        return output.read_text().strip()

    assert commit() == "unknown"  # not a checkout
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "one")
    clean = commit()
    assert clean == git("rev-parse", "--short=12", "HEAD").strip()
    kernel.write_text("two\n")
    two = commit()
    kernel.write_text("three\n")
    three = commit()
    (tree / "new.cu").write_text("four\n")
    four = commit()
    (tree / "new.cu").write_text("five\n")
    five = commit()
    assert len({clean, two, three, four, five}) == 5
    assert all(name.startswith(f"{clean}-dirty.") for name in (two, three, four, five))
    kernel.write_text("two\n")
    (tree / "new.cu").unlink()
    assert commit() == two


def test_unwritable_place(problems, tmp_path):
    (tmp_path / "file").write_text("in the way")
    result = sweep(problems, tmp_path / "file" / "run")
    assert result.returncode == 2 and "cannot be made" in result.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_disk(problems, tmp_path):
    out = tmp_path / "run"
    out.mkdir()
    (out / "sweep.csv").symlink_to("/dev/full")
    result = sweep(problems, out)
    assert result.returncode == 2 and "sweep.csv: cannot be written: it is a symbolic link" in result.stderr


def test_a_problem_that_does_not_fit_says_so():
    result = run("run", "gemm", "--device", "host", "--problem", "m=1048576,n=1048576,k=64", "--dtype", "fp32")
    assert result.returncode == 2
    assert "out_of_memory" in result.stdout and "GiB" in result.stdout


def test_run_compares_variants():
    result = run("run", "gemm", "--device", "host", "--problem", "m=33,n=40,k=24,act=silu")
    assert result.returncode == 0, result.stderr
    assert "host" in result.stdout and "max error" in result.stdout
    refused = run("run", "gemm", "--device", "host", "--problem", "m=33,n=40,k=24", "--variant", "naive")
    assert refused.returncode == 2 and "no_device" in refused.stdout


def test_listed_problems_carry_the_inputs_that_an_op_fills(tmp_path):
    (tmp_path / "sampler_step.csv").write_text("network,batch,elements,solver,steps,step,schedule,count\n"
                                               "mini,2,64,edm_euler,20,5,karras,1\n")
    result = run("list", "problems", "--format", "json", "--problems", tmp_path)
    assert result.returncode == 0, result.stderr
    problem = json.loads(result.stdout)
    table = problem["filled"]["coefficients"]
    assert len(table) == 20 * 12
    row = table[5 * 12 : 6 * 12]
    assert row[0] == 1 and row[1] < 0 and row[3] is None  # x0 = x - sigma m, not clamped
    assert row[4] + row[5] == pytest.approx(1)
    sigma = -row[1]
    assert problem["normal"]["x"] == [0, pytest.approx((1 + sigma**2) ** 0.5)]
    assert problem["normal"]["model_output"] == [0, 1]


def listed(*arguments):
    """The lines of `list --format json`, read strictly: NaN and Infinity are no JSON."""
    result = run("list", *arguments, "--format", "json")
    assert result.returncode == 0, result.stderr
    return [json.loads(line, parse_constant=pytest.fail) for line in result.stdout.splitlines()]


def test_ops_are_listed_as_data():
    ops = {op["op"]: op for op in listed("ops")}
    assert {"gemm", "conv2d", "network"} <= set(ops) and len(ops) == 15
    gemm = {field["name"]: field for field in ops["gemm"]["fields"]}
    assert gemm["m"] == {"name": "m", "type": "integer", "low": 1, "high": 1 << 24}
    assert gemm["act"] == {"name": "act", "type": "choice", "choices": ["none", "silu", "gelu", "gelu_tanh", "geglu"], "default": "none"}
    assert gemm["scale"] == {"name": "scale", "type": "real", "low": -1e6, "high": 1e6, "default": "1"}
    assert gemm["bias"] == {"name": "bias", "type": "flag", "choices": ["0", "1"], "default": "1"}
    assert {field["name"]: field for field in ops["sampler_step"]["fields"]}["seed"]["high"] == (1 << 63) - 1
    # The text says the same.
    lines = iter(run("list", "ops").stdout.splitlines())
    for op in ops.values():
        assert next(lines) == f"{op['op']}  ({', '.join(op['dtypes'])})"
        for field in op["fields"]:
            name, ends, default = re.fullmatch(r"  (\w+): (.*?)(?: \(default (.*)\))?", next(lines)).groups()
            assert (name, default) == (field["name"], field.get("default"))
            if field["type"] == "choice":
                assert ends.split(", ") == field["choices"]
            else:
                assert [float(end) for end in ends.split(" to ")] == [float(end) for end in field.get("choices") or (field["low"], field["high"])]
    assert not list(lines)


def test_variants_are_listed_as_data():
    variants = listed("variants")
    text = [line.split()[:2] for line in run("list", "variants").stdout.splitlines()[1:]]
    assert [[variant["op"], variant["variant"]] for variant in variants] == text
    assert [variant for op in listed("ops") for variant in op["variants"]] == variants
    for variant in variants:
        assert variant["kind"] and variant["arch"]
        assert variant["built"] == ("reason" not in variant) and variant.get("reason", "says why")
    host = next(variant for variant in variants if variant["op"] == "gemm" and variant["kind"] == "host")
    assert host == {"op": "gemm", "variant": "host", "kind": "host", "arch": "host", "built": True}


def test_problems_and_networks_are_listed_as_data(problems):
    (problems / "conv2d.csv").write_text("network,n,h,w,cin,cout,kernel,count\nmini,1,4,4,8,8,1,2\n")
    gemm, *_, conv = sorted(listed("problems", "--problems", problems), key=lambda problem: problem["op"], reverse=True)
    assert gemm["op"] == "gemm" and [tensor["name"] for tensor in gemm["tensors"]] == ["a", "b", "bias", "d"]
    assert gemm["tensors"][0] == {"name": "a", "shape": [8, 24], "dtype": "bf16", "role": "in"}
    assert gemm["tensors"][-1]["role"] == "out"
    assert conv["problem"] == "n=1,h=4,w=4,cin=8,cout=8,kernel=1" and conv["fields"]["pad"] == "0"  # not that of a 3x3
    (problems / "sets.csv").write_text("network,what\nother,problems to look at together\n")
    assert listed("networks", "--problems", problems) == [
        {"network": "mini", "set": False, "problems": 3, "launches": 6},
        {"network": "other", "set": True, "problems": 1, "launches": 1},
    ]
    assert run("list", "networks", "--problems", problems).stdout.splitlines() == ["mini", "other  (a set of problems)"]


def test_columns_are_listed_as_data():
    columns = {column["column"]: column for column in listed("columns")}
    assert columns["op"]["needed"] and columns["op"]["text"] and not columns["op"]["counter"]
    assert columns["l2_bytes"]["unit"] == "B" and columns["l2_bytes"]["counter"]
    assert [column["column"] for column in listed("columns", "--filter", "^dram_read")] == ["dram_read_bytes"]


def test_list_honours_ops(problems):
    assert {variant["op"] for variant in listed("variants", "--ops", "gemm,resample")} == {"gemm", "resample"}
    lines = run("list", "variants", "--ops", "gemm").stdout.splitlines()
    assert len(lines) > 5 and all(line.startswith(("op ", "gemm ")) for line in lines)
    assert [op["op"] for op in listed("ops", "--ops", "layernorm")] == ["layernorm"]
    assert listed("networks", "--ops", "conv2d", "--problems", problems) == []
    for what in ("ops", "variants", "problems", "networks"):
        result = run("list", what, "--ops", "gem")
        assert result.returncode == 2 and "unknown op 'gem'; did you mean 'gemm'" in result.stderr


NCU_HEADER = ('"ID","thread Domain:Push/Pop_Range:Msg","Kernel Name","dram__bytes_read.sum","dram__bytes_write.sum",'
              '"gpu__time_duration.sum","sm__warps_active.avg.pct_of_peak_sustained_active"\n"","","","byte","byte","ns","%"\n')


def test_crosscheck_puts_a_report_beside_a_row(problems, tmp_path):
    out = tmp_path / "run"
    assert sweep(problems, out, "--benchmark_filter=k=24").returncode == 0
    case = "gemm/m=8,n=16,k=24/bf16/host"
    report = tmp_path / "report.csv"

    def check(microseconds, *more, name=case):
        report.write_text(NCU_HEADER + f'"0","1 ""<default domain>:{case}:none"" ","f","1","2","{1000 * microseconds}","50"\n')
        return run("crosscheck", name, "--report", report, "--run", out, *more)

    [row] = rows(out)
    text = (out / "sweep.csv").read_text()
    (out / "sweep.csv").write_text(text.replace(f",{row['time_cold_us']},", ",100,", 1))
    agrees, differs, short = check(98), check(90), check(20)
    assert agrees.returncode == 0 and "+2.0 %" in agrees.stdout, agrees
    assert "SM clock, MHz" in agrees.stdout and "3 %, raw: " in agrees.stdout, agrees
    assert differs.returncode == 1 and "DIFFERS" in differs.stdout
    assert short.returncode == 2 and "nothing could be judged" in short.stderr and "not judged below 50 us" in short.stdout
    for result, says in (
        (check(98, name="gemm/m=8,n=16,k=24/bf16/ptx"), "no row of"),
        (check(98, "--device", "0"), "--device is for a row that is measured now"),
        (run("crosscheck", case, "--report", tmp_path / "none"), "cannot be read"),
        (run("crosscheck", case, "--report", report, "--run", tmp_path), "no sweep.csv"),
        (run("crosscheck", "gemm/m=8", "--report", report), "is not a case"),
        (run("crosscheck", case), "--report"),
    ):
        assert result.returncode == 2 and says in result.stderr, result
    report.write_text("no report\n")
    broken = run("crosscheck", case, "--report", report, "--run", out)
    assert broken.returncode == 2 and "report.csv:1: no column 'ID'" in broken.stderr


def test_networks_are_rows_of_a_sweep(tmp_path):
    out = tmp_path / "run"
    command = ["sweep", "--device", "host", "--ops", "network", "--networks", "digits-b1", "--out", out]
    result = run(*command)
    assert result.returncode == 0, result.stderr
    [row] = rows(out)
    assert (row["op"], row["problem"], row["variant"], row["kind"], row["status"]) == ("network", "name=digits,batch=1", "plan_own", "network", "ok")
    assert row["networks"] == "digits-b1:1" and row["reason"].startswith("nodes:")
    assert float(row["time_cold_us"]) > 0 and float(row["time_warm_us"]) > 0 and float(row["pct_of_roof"]) > 0
    assert 0 < float(row["max_rel_error"]) <= float(row["tolerance"])
    assert "1 cases are already in" in run(*command).stderr
    assert run("roofline", out).returncode == 0
    assert (out / "plan.csv").read_text() == "op,dtype,problem,variant\n"
    gate = run("gate", "--baseline", out, "--candidate", out)
    assert gate.returncode == 0, gate.stderr
    assert "1" in gate.stdout and "network" in gate.stdout + (out / "sweep.csv").read_text()


def test_networks_are_listed_with_what_they_cost():
    [line] = run("list", "problems", "--ops", "network", "--networks", "adm64-b1", "--format", "json").stdout.splitlines()
    problem = json.loads(line)
    assert problem["fields"] == {"name": "adm64", "batch": "1"} and problem["filled"]["timesteps"] == [500]
    assert 2.0e11 < problem["dtypes"]["bf16"]["flops"] < 2.2e11
    assert problem["dtypes"]["bf16"]["l2_error"] == 0.02 and problem["dtypes"]["fp32"]["l2_error"] == 1e-4
