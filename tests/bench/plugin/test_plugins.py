"""Kernels of a user's as rows, from shared libraries: right ones, and every way to be wrong."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.program import ROOT, needs_program, rows, run, sweep

COMPILER = os.environ.get("CXX") or shutil.which("g++")
pytestmark = [needs_program, pytest.mark.skipif(not COMPILER, reason="no C++ compiler")]
SOURCE = Path(__file__).with_name("plugin_rows.cpp")


def compiled(folder, name="mine.so", *options, source=SOURCE):
    file = folder / name
    subprocess.run([COMPILER, "-std=c++17", "-O1", "-shared", "-fPIC", "-pthread", "-I", ROOT / "bench/plugin/include", *options, source, "-o", file],
                   check=True)  # fmt: skip
    return file


def right(row):
    """Where others have the cores a row may have no time."""
    return row["status"] in ("ok", "throttled")


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("plugin"))


def measured(problems, out, plugin, variants, *more):
    result = sweep(problems, out, "--dtypes", "fp32", "--variants", variants, "--plugin", plugin, *more)
    return result, {row["variant"]: row for row in rows(out)}


def test_a_right_plugin_is_a_row_as_any_other(one, tmp_path, plugin):
    out = tmp_path / "run"
    result, table = measured(one, out, plugin, "host,right,of_prepared")
    assert result.returncode == 0, result.stderr
    assert list(table) == ["host", "right", "of_prepared"]
    for name in ("right", "of_prepared"):
        row = table[name]
        assert right(row) and row["kind"] == "host" and row["plugin"] == "mine.so", row
        if row["status"] == "throttled":
            continue
        assert float(row["time_cold_us"]) > 0 and float(row["time_warm_us"]) > 0 and float(row["pct_of_roof"]) > 0
        assert float(row["max_rel_error"]) <= float(row["tolerance"]) and row["networks"] == "mini:3"
        blank = {column for column, value in table["host"].items() if value} - {column for column, value in row.items() if value}
        assert blank <= {"prepare_us", "signature"}, blank
    assert table["host"]["plugin"] == "" and float(table["of_prepared"]["prepare_us"]) > 0
    samples = {line["variant"]: line for line in map(json.loads, (out / "samples.jsonl").read_text().splitlines())}
    assert len(samples["right"]["cold_us"]) == int(table["right"]["samples"] or len(samples["right"]["cold_us"]))

    assert run("roofline", out).returncode == 0, "the samples are those of the rows"
    plan = (out / "plan.csv").read_text()
    assert "right" not in plan and "of_prepared" not in plan, "a plan is for a program without the plugin"

    again, _ = measured(one, out, plugin, "host,right,of_prepared")
    assert again.returncode == 0 and "3 cases are already in" in again.stderr
    changed = tmp_path / "changed" / "mine.so"
    changed.parent.mkdir()
    changed.write_bytes(plugin.read_bytes() + b"x")
    again, _ = measured(one, out, changed, "host,right")
    assert again.returncode == 2 and "holds rows of another mine.so" in again.stderr
    again, table = measured(one, out, changed, "host,right", "--fresh")
    assert again.returncode == 0 and list(table) == ["host", "right"]


WRONG = {
    "stale": ("incorrect", "after the warm launches: d["),
    "behind": ("incorrect", "wrote tensor 'd' when its launch had returned"),
    "second_wrong": ("incorrect", "after a second launch: d[0] is"),
    "tenth_wrong": ("incorrect", "after the cold launches: d[0] is"),
    "past_the_end": ("incorrect", "wrote outside tensor 'd'"),
    "before_the_start": ("incorrect", "wrote outside tensor 'bias'"),
    "changes_an_input": ("incorrect", "changed its input 'a'"),
    "leaves_one_out": ("incorrect", "nan, expected"),
    "elsewhere": ("incorrect", "nan, expected"),
    "past_the_workspace": ("incorrect", "wrote past its workspace"),
    "crashes": ("cuda_error", "the process of mine.so was killed by signal 11"),
    "leaves": ("cuda_error", "the process of mine.so ended with exit code 0: good-bye"),
    "throws": ("cuda_error", "launch of the plugin threw an exception: no luck today"),
    "throws_seven": ("cuda_error", "launch of the plugin threw something that is no std::exception"),
    "fails": ("cuda_error", "launch of the plugin failed: error 7"),
    "fails_with_words": ("cuda_error", "launch of the plugin failed: seven is too many"),
    "never": ("unsupported_problem", "needs k = 64"),
}


def test_wrong_plugins_are_rows_with_a_reason(one, tmp_path, plugin):
    names = [*WRONG, "right"]
    result, table = measured(one, tmp_path / "run", plugin, ",".join(names))
    assert result.returncode == 1 and set(table) == set(names), result.stderr
    for name, (status, reason) in WRONG.items():
        row = table[name]
        assert row["status"] == status and reason in row["reason"], (name, row["status"], row["reason"])
        assert not row["time_cold_us"] and not row["time_warm_us"] and not row["gflops"], name
    assert right(table["right"]), "what died before it took nothing with it"


def test_a_plugin_that_hangs_is_ended(one, tmp_path, plugin, monkeypatch):
    monkeypatch.setenv("NOISEFLOOR_PLUGIN_SECONDS", "2")
    result, table = measured(one, tmp_path / "run", plugin, "hangs")
    assert result.returncode == 1, result.stderr
    assert table["hangs"]["status"] == "cuda_error"
    assert table["hangs"]["reason"] == "the process of mine.so gave no answer within 2 s"


def test_run_list_and_pair_take_plugins(plugin):
    problem = ("--problem", "m=8,n=16,k=24", "--dtype", "fp32", "--device", "host", "--plugin", plugin)
    one = run("run", "gemm", *problem, "--variant", "right")
    assert one.returncode in (0, 2) and "right: max error" in one.stdout, one.stderr  # 2: others have the cores, and there is no time
    assert run("run", "gemm", *problem, "--variant", "second_wrong").returncode == 1
    for option in (("--profile",), ("--output", "d.safetensors")):
        refused = run("run", "gemm", *problem, "--variant", "right", *option)
        assert refused.returncode == 2 and "a process of its own" in refused.stderr
    listed = run("list", "variants", "--ops", "gemm", "--plugin", plugin)
    assert listed.returncode == 0 and "past_the_workspace" in listed.stdout
    compared = run("pair", "gemm", "right", "host", *problem)
    assert "rounds" in compared.stdout or "waited" in compared.stdout, compared.stdout + compared.stderr
    for sides, whose in ((("stale", "host"), "ours after a "), (("host", "behind"), "theirs before the first block: wrote tensor 'd'")):
        wrong = run("pair", "gemm", *sides, *problem)
        assert wrong.returncode == 1 and whose in wrong.stdout or "waited" in wrong.stdout, wrong.stdout + wrong.stderr
    both = run("pair", "gemm", "right", "stale", *problem)
    assert both.returncode == 2 and "both are of one process" in both.stdout, both.stdout + both.stderr
    unknown = run("run", "gemm", *problem, "--variant", "rihgt")
    assert unknown.returncode == 2 and "did you mean 'right'" in unknown.stderr


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("no rows", ["noisefloor_plugin_at(0) is null"]),
        ("ABI", ["its ABI version is 99, this program's is 1"]),
        ("size", ["has 16 bytes", "sizeof(noisefloor_plugin)"]),
        ("op=gem", ["unknown op 'gem'", "did you mean 'gemm'"]),
        ("no op", ["unknown op ''"]),
        ("name=host", ["gemm already has a variant 'host'"]),
        ("name=", ["1 to 48 letters, digits and underscores"]),
        ("name=torch_mine", ["'torch_mine' is taken"]),
        ("name=plan_own", ["'plan_own' is taken"]),
        ("name=networks", ["'networks' is taken"]),
        ("name=stale", ["gemm already has a variant 'stale'"]),
        ("kind=fast", ["kind 'fast'", "host, naive, tiled"]),
        ("arch=sm_42", ["architecture 'sm_42'", "sm_90a"]),
        ("kind=tiled", ["kind 'tiled' and architecture 'host'"]),
        ("launch", ["has no launch"]),
        ("crash at load", ["killed by signal 11"]),
        ("exit at load", ["exit code 3"]),
    ],
)
def test_a_library_that_makes_no_sense_is_refused(one, tmp_path, plugin, wrong, words):
    out = tmp_path / "run"
    result = sweep(one, out, "--plugin", plugin, env={**os.environ, "PLUGIN_TEST": wrong})
    assert result.returncode == 2 and not out.exists()
    for text in ("mine.so", *words):
        assert text in result.stderr, result.stderr


def test_a_file_that_is_no_plugin_is_refused(one, tmp_path, plugin):
    text = tmp_path / "text.so"
    text.write_text("not a library\n")
    for file, words in [
        (text, "cannot be loaded as a shared library"),
        (compiled(tmp_path, "plain.so", "-DWITHOUT_THE_FUNCTION"), "has no function noisefloor_plugin_at"),
        (tmp_path / "missing.so", "no such file"),
        (tmp_path, "not a regular file"),
    ]:
        result = sweep(one, tmp_path / "run", "--plugin", file)
        assert result.returncode == 2 and words in result.stderr and str(file) in result.stderr, result.stderr
        assert not (tmp_path / "run").exists()
    copy = tmp_path / "other.so"
    shutil.copy(plugin, copy)
    for second, words in [(copy, "gemm already has a variant"), (plugin, "two files are called mine.so")]:
        result = sweep(one, tmp_path / "run", "--plugin", plugin, "--plugin", second)
        assert result.returncode == 2 and words in result.stderr, result.stderr


def test_the_example_of_the_page_is_a_right_plugin(tmp_path):
    source = tmp_path / "example.cpp"
    source.write_text(re.search(r"<!-- example -->\n```cpp\n(.*?)```", (ROOT / "docs/plugins.md").read_text(), re.S)[1])
    file = compiled(tmp_path, "example.so", source=source)
    one = ("--plugin", file, "--variant", "mine", "--dtype", "fp32", "--device", "host")
    result = run("run", "elementwise", "--problem", "op=relu,n=2,hw=9,channels=7", *one)
    assert "mine: max error 0 " in result.stdout, result.stdout + result.stderr
    refused = run("run", "elementwise", "--problem", "op=silu,channels=7", *one)
    assert refused.returncode == 2 and "needs op=relu in fp32" in refused.stdout


def test_the_header_is_c(tmp_path):
    source = tmp_path / "header.c"
    source.write_text("#include <noisefloor/plugin.h>\n")
    subprocess.run([shutil.which("gcc") or COMPILER, "-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", "-I",
                    ROOT / "bench/plugin/include", source], check=True)  # fmt: skip
