"""The shell scripts: help, wrong arguments, the choice of preset, and the steps of a sweep, driven with stand-ins for the programs."""

import os
import subprocess

import pytest

from tests.support.machine import ROOT, executable

SCRIPTS = ROOT / "scripts"


def run(*command, **environment):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
                          env={**os.environ, **environment})


def test_help_of_a_bundle_is_the_header(tmp_path):
    (tmp_path / "scripts").symlink_to(SCRIPTS)
    result = run(executable(tmp_path / "run.sh", (SCRIPTS / "bundle_run.sh").read_text()), "--help")
    assert result.returncode == 0 and result.stdout.startswith("usage: ") and "set -euo" not in result.stdout, result.stderr


def test_a_bundle_says_where_cudas_libraries_are(tmp_path):
    (tmp_path / "scripts").symlink_to(SCRIPTS)
    (tmp_path / "a folder").mkdir()
    (tmp_path / "a folder/libcudnn.so.9").write_text("")
    result = run(executable(tmp_path / "run.sh", (SCRIPTS / "bundle_run.sh").read_text()), "libraries", LD_LIBRARY_PATH=f"/nowhere:{tmp_path}/a folder")
    lines = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert result.returncode == 0 and lines["libcudnn.so.9"] == f"{tmp_path}/a folder/libcudnn.so.9" and len(lines) == 4, result.stderr


@pytest.mark.parametrize("command, says", [
    (["setup", "--chek"], "unknown argument '--chek'"),
    (["test", "--gpus"], "unknown argument '--gpus'"),
    (["test", "--filter"], "--filter needs"),
    (["../tools/fuzz", "--seconds", "0"], "--seconds needs a whole number"),
    (["../tools/fuzz", "problem_txt"], "there is no target 'problem_txt'"),
    (["bundle", "--output"], "--output needs"),
    (["wheel", "--architectures"], "--architectures needs"),
])
def test_wrong_arguments_are_named(command, says):
    result = run(SCRIPTS / command[0], *command[1:])
    assert result.returncode == 2
    assert says in result.stderr


# Stands in for ctest: `-N -R RE` lists the names that match, of those that CTest's own lists would have.
CTEST = """#!/usr/bin/env bash
while [ $# -gt 0 ]; do [ "$1" != -R ] || re=$2; shift; done
found=$(printf '%s\\n' host.groupnorm.Text python.scripts.setup gpu_tests | grep -E -- "$re" | sed 's/^/  Test #1: /')
[ -z "$found" ] || echo "$found"
echo "Total Tests: $(grep -c . <<<"$found")"
"""
# Stands in for gpu_tests: lists the names that match, as Google Test does.
GPU_TESTS = """#!/usr/bin/env bash
[ "$1" = --gtest_list_tests ] || exit 3
! printf '%s\\n' Own.IsDeterministic/attention_tiled | grep -E -- "$NOISEFLOOR_TEST_FILTER" >/dev/null || printf 'Own.\\n  IsDeterministic/attention_tiled\\n'
"""


@pytest.mark.parametrize("filter, gpu, selection, gpu_filter", [
    ("", True, "", ""),
    ("groupnorm", True, "-R groupnorm", ""),
    ("attention", True, "-R (attention)|^gpu_tests$", "attention"),
    ("gpu_tests", True, "-R gpu_tests", ""),
    ("^gpu_|Own", True, "-R ^gpu_|Own", ""),  # the whole of gpu_tests is asked for
    ("groupnorm", False, "-R groupnorm", ""),
    ("attention", False, None, None),
    ("nothing", True, None, None),
])
def test_a_filter_chooses_tests(tmp_path, filter, gpu, selection, gpu_filter):
    ctest = executable(tmp_path / "ctest", CTEST)
    (tmp_path / "bin").mkdir()
    if gpu:
        executable(tmp_path / "bin" / "gpu_tests", GPU_TESTS)
    text = (f'set -euo pipefail; . "{SCRIPTS}/lib.sh"; step="running the tests"; choose_tests "{ctest}" "{tmp_path}" "$1" ""; '
            'echo "${selection[*]}"; echo "${NOISEFLOOR_TEST_FILTER:-}"')
    result = run("bash", "-c", text, "test", filter)
    if selection is None:
        assert result.returncode == 2
        assert f"no test's name matches '{filter}'" in result.stderr
    else:
        assert result.stdout == f"{selection}\n{gpu_filter}\n", result.stderr


@pytest.mark.parametrize("ends, code", [("0", 0), ("1", 1), ("2", 2), ("70", 2)])
def test_a_sweep_is_the_programs(tmp_path, ends, code):
    program = executable(tmp_path / "program", f'#!/bin/sh\nprintf "%s|" "$@" >"$CALLS"\nexit {ends}\n')
    text = f'set -euo pipefail; . "{SCRIPTS}/lib.sh"; sweep_below "$@"; echo not reached'
    result = run("bash", "-c", text, "sweep", program, tmp_path / "runs", "--ops", "gemm", "--out", "a b", CALLS=str(tmp_path / "calls"))
    assert result.returncode == code and result.stdout == ""
    assert (tmp_path / "calls").read_text() == f"sweep|--runs|{tmp_path}/runs|--ops|gemm|--out|a b|"
    assert ("ended with exit code 70" in result.stderr) == (ends == "70")


# Stands in for lib.sh: nothing is set up or built, and the program says what it is asked for.
LIB = """root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
setup() { :; }; build() { :; }; export_cuda_library_path() { :; }; choose_preset() { preset=host; }
"""


def script_of(folder, name, lib=LIB):
    """The script with this lib.sh, in a tree whose program says what it is asked for."""
    executable(folder / "scripts" / "lib.sh", lib)
    executable(folder / "build" / "host" / "bin" / "noisefloor", '#!/usr/bin/env bash\necho "$*"\n')
    return executable(folder / "scripts" / name, (SCRIPTS / name).read_text())


@pytest.mark.parametrize("arguments, asked", [
    ([], "digits --out {root}/samples/digits.png --count 100"),
    (["--seed", "3"], "digits --seed 3 --out {root}/samples/digits.png --count 100"),
    (["--video"], "moving-digits --out {root}/samples/moving-digits.png --count 20 --zoom 4 --gif {root}/samples/moving-digits.gif"),
    (["--video", "--count", "3", "--out", "v.png"], "moving-digits --count 3 --out v.png --zoom 4"),
    (["adm64", "--weights", "w", "--out", "a.png"], "adm64 --weights w --out a.png"),
])
def test_a_sample_is_asked_for(tmp_path, arguments, asked):
    result = run(script_of(tmp_path, "sample"), *arguments)
    assert result.stdout == f"sample {asked}\n".format(root=tmp_path), result.stderr


@pytest.mark.parametrize("arguments, asked", [
    (["--steps", "5"], ["python -m baselines.pytorch.digits.data --side 8 --out {root}/training/digits-data.safetensors",
                        "train digits --steps 5 --out {root}/training/digits.safetensors --data {root}/training/digits-data.safetensors "
                        "--checkpoint {root}/training/digits.checkpoint.safetensors --losses {root}/training/digits.losses.csv",
                        "sample digits --weights {root}/training/digits.safetensors --count 100 --out {root}/training/digits.png",
                        "python {root}/reports/plots/plot_loss.py {root}/training/digits.losses.csv --out {root}/training/digits.losses.png"]),
    (["digits", "--data", "d", "--out=o.safetensors", "--losses", "l.csv", "--checkpoint", "c", "--device", "host", "--resume"],
     ["train digits --data d --out=o.safetensors --losses l.csv --checkpoint c --device host --resume",
      "sample digits --weights o.safetensors --count 100 --out o.png --device host", "python {root}/reports/plots/plot_loss.py l.csv --out l.png"]),
])
def test_a_training_ends_in_pictures(tmp_path, arguments, asked):
    python = executable(tmp_path / "python", '#!/usr/bin/env bash\necho "python $*"\n')
    train = script_of(tmp_path, "train", LIB + f"python_with() {{ echo {python}; }}\nsay() {{ :; }}\ndie() {{ exit 2; }}\n")
    result = run(train, *arguments)
    assert result.stdout.splitlines() == [line.format(root=tmp_path) for line in asked], result.stderr
    assert run(train, "--out", tmp_path / "no" / "folder" / "w").stdout == "", "nor are data written elsewhere"


def test_a_training_without_data_is_refused_before_anything_is_built(tmp_path):
    assert run(script_of(tmp_path, "train", LIB + "setup() { exit 9; }\ndie() { exit 2; }\n"), "sdxl").returncode == 2
