"""The program as a user meets it on a machine without a GPU: exit codes and messages, whatever the command."""

import os
import shutil
import subprocess

import pytest

from tests.cli.program import PROGRAM, needs_program, read_table, run

pytestmark = needs_program


@pytest.mark.parametrize("arguments, says", [
    (["sweeep"], "did you mean 'sweep'"),
    (["sweep", "--opz", "gemm"], "did you mean '--ops'"),
    (["sample", "digits", "--class", "3"], "unknown option '--class'; --help"),
    (["help"], "unknown command 'help'; --help"),
    (["roofline"], "run_dir is required; --help"),
    (["sweep", "--take-turns"], "--take-turns was removed: sweep one after the other"),
    (["crosscheck", "a", "--report", "b"], "crosscheck was removed: scripts/ncu"),
    (["duel", "gemm", "host"], "duel is called pair now"),
    (["sweep", "--no-duels", "--ops", "gem"], "--no-duels is called --no-pairs now"),
    (["sample", "digits", "--without", "pdl,embed-ahead", "--steps", "0"], "embed-ahead is called hoisting now"),
    (["sweep", "--networks", "stream,sd15-whole-b2", "--ops", "gem"], "sd15-whole-b2 is called sd15-b2 now"),
    (["sweep", "--ops", "gem"], "unknown op 'gem'; did you mean 'gemm'"),
    (["sweep", "--device", "host", "--networks", "adm64-b2"], "unknown network 'adm64-b2'; did you mean 'adm64-b"),
    (["sweep", "--device", "host", "--variants", "naiv"], "unknown variant 'naiv'; did you mean 'naive'"),
    (["sweep", "--device", "host", "--dtypes", "bf17"], "unknown dtype 'bf17'; did you mean 'bf16'"),
    (["sweep", "--device", "host", "--benchmark_filter=("], "is not a regular expression"),
    (["sweep", "--device", "host", "--benchmark_filter=nothing_is_named_so"], "no case matches"),
    (["sweep", "--device", "host", "--benchmark_flter=x"], "benchmark_flter"),
    (["sweep", "--device", "host", "--benchmark_format=foo"], "--benchmark_format is 'foo', not one of console"),
    (["sweep", "--device", "host", "--benchmark_out_format=xml"], "--benchmark_out_format is 'xml', not one of"),
    (["sweep", "--device", "host", "--benchmark_list_tests=perhaps"], "--benchmark_list_tests is 'perhaps', not"),
    (["sweep", "--device", "host", "--benchmark_repetitions=0"], "--benchmark_repetitions is '0', not a whole number from 1"),
    (["sweep", "--device", "seven"], "not 'host' or a device number"),
    (["sweep", "--device", "all", "--benchmark_out=x"], "every GPU has a process of its own"),
    (["sweep", "--problems", "no-such-folder"], "no such folder"),
    (["sweep", "--counters", "maybe"], "maybe"),
    (["sweep", "--device", "host", "--counters", "require"], "counters"),
    (["run", "gem", "--problem", "m=1"], "unknown op 'gem'; did you mean 'gemm'"),
    (["run", "gemm", "--problem", "m=1,n=1,k=1", "--dtype", "fp8"], "has no dtype 'fp8'"),
    (["run", "gemm", "--problem", "m=1,n=1,k=1", "--seed", "18446744073709551616"], "--seed 18446744073709551616: the range is 0 to"),
    (["run", "gemm", "--problem", "m=1,n=1,k=1", "--device", "host", "--benchmark_filter=x"], "belong to"),
    (["roofline", "no-such-folder"], "no-such-folder: no such folder; give the folder of a run"),
    (["tune", "groupnorm"], "--out is required"),
    (["pair", "gemm", "host", "host", "--networks", "digits-b1", "--problem", "m=1,n=1,k=1"], "give --problem, or --networks"),
    (["tune", "layernorm", "--out", "times.csv"], "layernorm offers no choices to tune; these do: attention ptx_sm90a, attention ptx_sm90a_wide, gemm ptx_sm90a, "),
    (["tune", "groupnorm", "--variant", "ptx_sm90", "--out", "times.csv"], "did you mean 'ptx_sm90a'"),
    (["tune", "groupnorm", "--budget", "0", "--out", "times.csv"], "--budget"),
    (["tune", "conv3d_temporal", "--networks", "digits-b1", "--out", "times.csv"], "these networks have no conv3d_temporal"),
    (["tune", "groupnorm", "--device", "host", "--out", "times.csv"], "needs a CUDA device; this is "),
    ([], "subcommand"),
])
def test_bad_input_is_named_and_exits_2(arguments, says, tmp_path):
    result = run(*arguments, cwd=tmp_path)
    # Relative problem folders are found from the program, so the working directory does not matter.
    assert result.returncode == 2, result
    assert says in result.stderr + result.stdout
    assert "Traceback" not in result.stderr and "terminate" not in result.stderr
    if "--counters" not in arguments:  # whether they can be had is known only once the run folder is there
        assert not any(tmp_path.iterdir())


@pytest.mark.skipif(not shutil.which("ldd"), reason="needs ldd")
def test_starts_without_the_vendors_libraries():
    needed = subprocess.run(["ldd", PROGRAM], capture_output=True, text=True).stdout
    for library in ("libcupti", "libcublas", "libcudnn", "libcuda.so", "libnvidia-ml"):
        assert library not in needed


def test_ceilings_are_kept_and_written(tmp_path):
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    first = run("ceilings", "--device", "host", "--out", tmp_path / "first.csv", env=environment)
    assert first.returncode == 0 and "measuring the ceilings" in first.stderr
    again = run("ceilings", "--device", "host", "--out", tmp_path / "no" / "again.csv", env=environment)
    assert again.returncode == 2 and "again.csv" in again.stderr and "--out" in again.stderr
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    pipe = run("ceilings", "--device", "host", "--out", tmp_path / "pipe", env=environment)
    assert pipe.returncode == 0 and (tmp_path / "pipe").is_fifo()
    # Those of a busy host are measured again on a quieter one, so only the names are the same.
    names = [[line.split(",")[0] for line in text.splitlines()] for text in (os.read(reader, 1 << 16).decode(), (tmp_path / "first.csv").read_text())]
    assert names[0] == names[1] and len(names[0]) > 2
    os.close(reader)
    assert (tmp_path / "first.csv").read_text().startswith("name,value,unit")
    # Any machine that builds this copies more than 0.5 GB/s and multiplies more than 0.5 GFLOP/s, and less than a thousand times what the
    # largest servers do.
    measured = {row["name"]: row for row in read_table(tmp_path / "first.csv")}
    assert 0.5 < float(measured["dram_copy"]["value"]) < 1e5 and 0.5 < float(measured["fma_fp32"]["value"]) < 1e7
    assert all(row["load"] for row in measured.values())
