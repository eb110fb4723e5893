"""The gate and compare as a user meets them: exit codes, messages, files, and baselines that must survive bad input."""

import json
import os
import re
import shutil
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.cli.gated_runs import RECORDED, accept, baseline, contents, gate, pack, write_run  # noqa: F401
from tests.cli.program import edit_json, needs_program, read_table, rows, run, strict, write_rows

pytestmark = needs_program


def test_slower_rows_fail_and_are_written_down(baseline, tmp_path):
    slower = write_run(tmp_path / "b", [50.0] * 18 + [56.0, 60.0], seed=1)
    result = gate(baseline, slower, "--markdown", tmp_path / "gate.md", "--junit", tmp_path / "gate.xml")
    assert result.returncode == 1, result
    markdown = (tmp_path / "gate.md").read_text()
    tables = [line for line in markdown.splitlines() if line.startswith("|")]
    assert "m=20,n=64,k=64" in tables[2] and "m=19,n=64,k=64" in tables[3], "worst first"
    assert len({line.count("|") - line.count("\\|") for line in tables[:4]}) == 1, "every line has the header's cells"
    assert "net-b1" in markdown and "not shown: 18 pass" in markdown

    suites = ElementTree.parse(tmp_path / "gate.xml").getroot()
    assert suites.tag == "testsuites" and [child.tag for child in suites] == ["testsuite"]
    suite = suites[0]
    cases = suite.findall("testcase")
    assert len(list(suite)) == len(cases) == int(suite.get("tests")) == 20
    for child, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        for counted in (suites, suite):
            assert int(counted.get(attribute)) == len(suite.findall(f"testcase/{child}"))
    assert {case.get("name") for case in cases if case.find("failure") is not None} == {"m=20,n=64,k=64 ptx", "m=19,n=64,k=64 ptx"}
    message = cases[0].find("failure").get("message")
    assert message.startswith("regressed by warm and cold; warm: 4") and "; cold: 5" in message, message
    for case in cases:
        assert case.get("classname") == "gemm.bf16" and float(case.get("time")) > 0
        assert len(list(case)) <= 1 and all(child.get("message") for child in case)
    assert len({(case.get("classname"), case.get("name")) for case in cases}) == len(cases)


def read_bencher(file):
    """Bencher's metric format, as https://bencher.dev/docs/reference/bencher-metric-format has it: its JSON schema, and its longest names."""
    data = strict(file.read_text())
    assert isinstance(data, dict)
    for benchmark, measures in data.items():
        assert 0 < len(benchmark) <= 1024 and not benchmark.endswith("-bencher-ignore") and isinstance(measures, dict)
        for measure, metric in measures.items():
            assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", measure) and len(measure) <= 64, "a slug"
            assert "value" in metric and set(metric) <= {"value", "lower_value", "upper_value"}
            assert all(isinstance(value, (int, float)) for value in metric.values())
    return data


def read_benchmark_action(file):
    """Custom benchmarks of https://github.com/benchmark-action/github-action-benchmark: an array of objects; range and extra are optional."""
    data = strict(file.read_text())
    assert isinstance(data, list)
    for entry in data:
        assert {"name", "unit", "value"} <= set(entry) <= {"name", "unit", "value", "range", "extra"}
        assert isinstance(entry["value"], (int, float)) and all(isinstance(entry[key], str) for key in set(entry) - {"value"})
    return {entry["name"]: entry for entry in data}


def test_other_pages_can_show_the_times(baseline, tmp_path):
    slower = write_run(tmp_path / "b", [50.0] * 19 + [60.0, 50.0], seed=1, status={3: "incorrect"})
    result = gate(baseline, slower, "--new-rows", "--bencher", tmp_path / "bmf.json", "--benchmark-action", tmp_path / "action.json")
    assert result.returncode == 1, result
    bencher, action = read_bencher(tmp_path / "bmf.json"), read_benchmark_action(tmp_path / "action.json")
    timed = {f"gemm/{row['problem']}/bf16/ptx": row for row in rows(slower) if row["status"] == "ok"}
    assert timed.pop("gemm/m=21,n=64,k=64/bf16/ptx"), "a new row is there once the baseline has it"
    assert set(bencher) == set(timed) and len(timed) == 19 and set(action) == {f"{name} ({phase})" for name in timed for phase in ("cold", "warm")}
    for name, row in timed.items():
        cold, warm = bencher[name]["latency"], bencher[name]["warm-latency"]
        assert cold["value"] == pytest.approx(1e3 * float(row["time_cold_us"]), rel=1e-3) and cold["lower_value"] < cold["value"] < cold["upper_value"]
        assert warm["value"] == pytest.approx(1e3 * float(row["time_warm_serial_us"]), rel=1e-3)
        assert action[f"{name} (cold)"]["value"] == pytest.approx(cold["value"] / 1e3) and action[f"{name} (cold)"]["unit"] == "us"
        assert action[f"{name} (warm)"]["range"].startswith("± ")
    assert action["gemm/m=20,n=64,k=64/bf16/ptx (cold)"]["extra"].startswith("regressed: 50")
    assert list(bencher) == sorted(bencher)


def test_files_of_a_gate_are_written_whole_or_not_at_all(baseline, tmp_path):
    same = write_run(tmp_path / "b", [50.0] * 20, seed=1)
    (tmp_path / "old.json").write_text("old")
    for arguments, says in ((["--bencher", tmp_path / "old.json", "--benchmark-action", tmp_path / "none" / "x.json"], "--benchmark-action"),
                            (["--bencher", tmp_path / "x.json", "--benchmark-action", tmp_path / "x.json"], "is the same file as --bencher"),
                            (["--junit", same / "env.json"], "is the same file as --candidate"),
                            (["--noise", tmp_path / "old.json", "--junit", tmp_path / "old.json"], "is the same file as --noise")):
        result = gate(baseline, same, *arguments)
        assert result.returncode == 2 and says in result.stderr and not result.stdout, result
    (same / "samples.jsonl").write_text("{")
    result = gate(baseline, same, "--bencher", tmp_path / "old.json", "--benchmark-action", tmp_path / "x.json")
    assert result.returncode == 2 and (tmp_path / "old.json").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "old.json"]


def test_packed_samples_are_as_good(baseline, tmp_path):
    slow = write_run(tmp_path / "b", [50.0] * 10 + [60.0] * 10, seed=1)
    plain = gate(baseline, slow, "--junit", tmp_path / "plain.xml")
    for folder in (baseline, slow):
        pack(folder / "samples.jsonl")
    packed = gate(baseline, slow, "--junit", tmp_path / "packed.xml")
    assert packed.returncode == plain.returncode == 1 and packed.stdout == plain.stdout, packed.stderr
    assert (tmp_path / "packed.xml").read_bytes() == (tmp_path / "plain.xml").read_bytes()
    (baseline / "samples.jsonl").write_text("")
    both = gate(baseline, slow)
    assert both.returncode == 2 and "has samples.jsonl and samples.jsonl.gz: remove the one" in both.stderr, both.stderr
    (baseline / "samples.jsonl").unlink()
    accepted = accept(baseline, slow, "--force")
    assert accepted.returncode == 0 and (baseline / "samples.jsonl.gz").read_bytes() == (slow / "samples.jsonl.gz").read_bytes(), accepted.stderr


def test_bad_arguments_exit_2(baseline, tmp_path):
    for arguments, says in (
        (["gate", "--baseline", baseline], "--candidate is required"),
        (["gate", "--baseline", baseline, "--candidate", "nowhere"], "nowhere: no such folder"),
        (["gate", "--baseline", baseline, "--candidate", baseline / "sweep.csv"], "is not a folder"),
        (["gate", "--baseline", baseline, "--candidate", baseline, "--filter", "("], "is not a regular expression"),
        (["gate", "--baseline", baseline, "--candidate", baseline, "--filter", "conv"], "matches the filter"),
        (["gate", "--baseline", baseline, "--candidate", baseline, "--markdown", tmp_path / "no" / "x.md"], "there is no folder"),
        (["gate", "--baseline", baseline, "--candidate", baseline, "--confrim", "x"], "did you mean '--confirm'"),
        (["gate", "--candidate", baseline], "--baseline is required"),
        (["gate", "--baseline", baseline, "--candidate", baseline, "--noise", baseline], "gate calibrate"),
        (["gate", "accept", "--baseline", baseline], "--candidate is required"),
        (["gate", "accept", "--baseline", baseline, "--candidate", "nowhere", "--forse"], "did you mean '--force'"),
        (["gate", "--junit", "x.xml", "accept", "--baseline", baseline, "--candidate", baseline], "excludes"),
        (["gate", "accept", "--baseline", "", "--candidate", baseline], "empty"),
        (["gate", "--baseline", baseline, "--candidate", baseline, "--accept"], "gate accept --baseline"),
        (["gate", "--resources", "--baseline", "kernels.csv"], "noisefloor resources"),
        (["gate", "--baseline", baseline, "--candidate", baseline, "--strict"], "10 %"),
        (["compare", baseline, baseline, "--variants", "ptx"], "--variants ptx: is two"),
        (["compare", baseline, baseline, "--variants", "ptx,none"], "no row of a variant 'none'"),
    ):
        result = run(*arguments)
        assert result.returncode == 2 and says in result.stderr, (arguments, result)


def test_compare_prints_no_verdict(baseline, tmp_path):
    other = write_run(tmp_path / "b", [25.0] * 20, device="Other GPU")
    result = run("compare", baseline, other, "--markdown", tmp_path / "compare.md")
    assert result.returncode == 0, result
    for word in ("regressed", "improved", "ambiguous", "noise"):
        assert word not in result.stdout
    assert "20 rows in both, B takes 0.500 times A's time" in result.stdout and "device: Test GPU and Other GPU" in result.stdout
    assert "net-b1" in (tmp_path / "compare.md").read_text()
    for folder in (baseline, other):
        before = contents(folder)
        result = run("compare", baseline, other, "--markdown", folder / "sweep.csv")
        assert result.returncode == 2 and "is the same file as the run " in result.stderr and contents(folder) == before, result


def test_compare_sets_variants_of_a_recorded_run_side_by_side():
    result = run("compare", RECORDED, RECORDED, "--variants", "cublaslt,ptx_sm90a")
    assert result.returncode == 0, result
    assert "cublaslt / ptx_sm90a" in result.stdout and re.search(r"^gemm +m=\d+,n=\d+", result.stdout, re.M)


def test_noise_is_measured_kept_and_named(baseline, tmp_path):
    runs = [write_run(tmp_path / f"r{i}", [50.0 + 0.1 * (i % 2)] * 20, seed=10 + i) for i in range(4)]
    slower = write_run(tmp_path / "b", [51.3] * 20, seed=1, commit="def")
    result = gate(baseline, slower)
    assert result.returncode == 0 and "assumed" in result.stdout, "2.6 % is less than what is assumed lets through"
    kept = run("gate", "calibrate", "--baseline", baseline, *runs)
    assert kept.returncode == 0 and "from 4 runs" in kept.stdout, kept
    table = json.loads((baseline / "gate_noise.json").read_text())
    assert table["runs"] == [f"abc 2026-01-01T00:00:{10 + i}Z" for i in range(4)] and len(table["rows"]) == 40
    for more in ([], ["--noise", shutil.copy(baseline / "gate_noise.json", tmp_path / "noise.json")]):
        result = gate(baseline, slower, *more)
        assert result.returncode == 1 and "20 regressed" in result.stdout and "from 4 of them" in result.stdout, result
    result = gate(baseline, runs[0])
    assert result.returncode == 2 and "measured from" in result.stderr, "it would always pass"
    assert accept(baseline, slower).returncode == 0 and json.loads((baseline / "gate_noise.json").read_text()) == table

    before = contents(tmp_path)
    off = write_run(tmp_path / "off", [50.0] * 10 + [200.0] * 10, seed=30)
    for folders, says in ((runs[:2], "3 runs"), ([*runs[:2], runs[0]], "holds the samples of"), ([*runs, slower], "between runs of one build"),
                          ([*runs, off], f"{off}: 10 of its 20 rows"), ([], "runs is required")):
        result = run("gate", "calibrate", "--baseline", baseline, *folders)
        assert result.returncode == 2 and says in result.stderr, result
        assert before.items() <= contents(tmp_path).items()
    for text, says in (("{}", "is not what gate calibrate writes"), ('{"classes": []}', "of an older version")):
        (baseline / "gate_noise.json").write_text(text)
        result = gate(baseline, slower)
        assert result.returncode == 2 and says in result.stderr


def test_a_suspect_is_measured_again(baseline, tmp_path):
    slower, again = write_run(tmp_path / "b", [50.0] * 18 + [55.0] * 2, seed=1), write_run(tmp_path / "again", [50.0] * 19 + [55.0], seed=2)
    assert "2 regressed" in gate(baseline, slower).stdout
    result = gate(baseline, slower, "--confirm", again)
    assert result.returncode == 1 and "1 regressed" in result.stdout and "measured again" in result.stdout, result
    for folder, digest in ((slower, "one"), (again, "another")):
        edit_json(folder / "env.json", **{"plugin mine.py": digest})
    result = gate(baseline, slower, "--confirm", again)
    assert result.returncode == 2 and "mine.py" in result.stderr, "it was changed since"
    result = gate(baseline, slower, "--confirm", tmp_path / "new")
    assert result.returncode == 2 and "candidate is of abc" in result.stderr and not (tmp_path / "new").exists(), "not of this build"


def test_a_suspect_is_swept_as_its_run_was(tmp_path):
    (problems := tmp_path / "problems").mkdir()
    sizes = "".join(f"mini,{1000 + i},1,1,0.3333333333333333,1\n" for i in range(20))  # names of more than a regular expression takes
    (problems / "gemm.csv").write_text(f"network,m,n,k,scale,count\n{sizes}")
    slow, json_file = tmp_path / "run", tmp_path / "all.json"
    swept = run("sweep", "--device", "host", "--problems", problems, "--networks", "all", "--ops", "gemm", "--dtypes", "fp32", "--out", slow, f"--benchmark_out={json_file}")
    assert swept.returncode == 0, swept.stderr
    base = shutil.copytree(slow, tmp_path / "base")
    text = re.sub(r'("\w*_us":\[)([^]]*)', lambda found: found[1] + ",".join(str(float(us) / 10) for us in found[2].split(",")), (base / "samples.jsonl").read_text())
    (base / "samples.jsonl").write_text(text)  # of a machine ten times as fast
    kept = ("op", "variant", "kind", "dtype", "problem", "status", "device", "time_cold_us", "time_warm_us", "time_warm_serial_us", "samples", "commit")
    write_rows(base, [{name: float(row[name]) / 10 if name.startswith("time_") and row[name] else row[name] for name in kept} for row in rows(base)])
    before, environment = json_file.read_bytes(), json.loads((slow / "env.json").read_text())
    environment["command_lines"][-1] += ["--reuse", str(tmp_path / "nowhere")]  # a suspect is not kept of the baseline
    (slow / "env.json").write_text(json.dumps(environment))
    result = gate(base, slow, "--confirm", tmp_path / "again")
    assert result.returncode == 1 and "measured again" in result.stdout and json_file.read_bytes() == before, result
    assert len(rows(tmp_path / "again")) == result.stdout.count("measured again")
    cut = tmp_path / "again" / "sweep.csv"
    cut.write_bytes(cut.read_bytes()[:-5])  # killed as it wrote: the same command measures what is left
    result = gate(base, slow, "--confirm", tmp_path / "again")
    assert result.returncode == 1 and "measuring 1 suspects" in result.stderr, result


def test_changed_launches_are_named_and_fail_where_asked(baseline, tmp_path):
    other = write_run(tmp_path / "b", [50.0] * 20, seed=1, kernel="gemm_split")
    result = gate(baseline, other, "--markdown", tmp_path / "gate.md")
    assert result.returncode == 0 and re.search(r"appears +gemm_split<7>", result.stdout) and re.search(r"vanishes +gemm<7>", result.stdout), result
    assert "### Launches" in (tmp_path / "gate.md").read_text()
    assert gate(baseline, other, "--launches").returncode == 1
    same = gate(baseline, write_run(tmp_path / "c", [50.0] * 20, seed=2, commit="def"), "--launches")
    assert same.returncode == 0 and "20 rows compared: 0 regressed, 0 ambiguous, 0 improved, 20 pass" in same.stdout and "commit: abc and def" in same.stdout


def test_resources_need_kernels(tmp_path):
    """The other half: what can be said without a GPU, and in a host build without kernels."""
    record = tmp_path / "kernels.csv"
    for more, says in (([], "cannot be read"), (["--candidate", tmp_path / "none"], "no such file"), (["--markdown", "x.md"], "--markdown")):
        result = run("resources", "--baseline", record, *more)
        assert result.returncode == 2 and (says in result.stderr or "cuobjdump" in result.stderr or "no kernels in it" in result.stderr)
        assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("says, code, answer", [
    ("cuobjdump fatal   : Memory allocation failure", 1, "cuobjdump failed: cuobjdump fatal   : Memory allocation failure"),
    ("cuobjdump info    : File 'x' does not contain device code", 255, "no kernels in it"),
])
def test_an_error_of_cuobjdump_is_no_program_without_kernels(tmp_path, says, code, answer):
    tool = tmp_path / "cuobjdump"
    tool.write_text(f'#!/bin/sh\necho "{says}" >&2\nexit {code}\n')
    tool.chmod(0o755)
    result = run("resources", "--baseline", tmp_path / "kernels.csv", env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert result.returncode == 2 and answer in result.stderr


def with_cuobjdump():
    """The environment with the cuobjdump of the system's toolkit or of Python's packages."""
    folders = [str(folder) for folder in Path(sys.prefix).glob("lib/python3*/site-packages/nvidia/*/bin")]
    path = os.pathsep.join([os.environ.get("PATH", ""), *folders])
    if not shutil.which("cuobjdump", path=path):
        pytest.skip("no cuobjdump")
    return {**os.environ, "PATH": path}


def test_kernels_are_as_recorded():
    """No kernel takes more registers, static shared memory or stack than recorded. After a change that is worth it:
    scripts/noisefloor resources --baseline reports/recorded/nvidia-h200 --accept, with a build for 75;90a."""
    recorded = read_table(RECORDED / "kernels.csv")
    toolkit = recorded[0]["toolkit"]
    architectures = ",".join(sorted({row["arch"].removeprefix("sm_") for row in recorded}))
    if f"CUDA {toolkit} architectures {architectures}\n" not in run("devices").stdout:
        pytest.skip(f"the baseline is of CUDA {toolkit} for {architectures}, which gives out registers in its own way")
    result = run("resources", "--baseline", RECORDED, env=with_cuobjdump())
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr


def test_a_build_for_fewer_architectures_does_not_replace_the_baseline(tmp_path):
    if "architectures" not in run("devices").stdout:
        pytest.skip("a build without kernels")
    text = (RECORDED / "kernels.csv").read_text()
    record = tmp_path / "kernels.csv"
    record.write_text(text + text.splitlines()[1].replace("sm_75", "sm_70") + "\n")
    before = record.read_text()
    result = run("resources", "--accept", "--baseline", record, env=with_cuobjdump())
    assert result.returncode == 2 and "has kernels for sm_70, " in result.stderr and "this build for sm_" in result.stderr, result.stderr
    assert record.read_text() == before
