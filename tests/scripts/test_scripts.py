"""The shell scripts: help, wrong arguments, the choice of preset, and the steps of a sweep, driven with stand-ins for the programs."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.locks import held

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"

# Stands in for noisefloor: writes what it was called with, and the files that a sweep leaves.
PROGRAM = """#!/usr/bin/env bash
echo "$*" >>"$CALLS"
case "$1" in
  --version) echo "noisefloor 0 (abc)"; exit 0 ;;
  sweep)
    [[ " $* " != *" --device all "* ]] || folders=${FOLDERS-gpu0-h200 gpu1-h200}
    while [ $# -gt 0 ]; do [ "$1" != --out ] || out=$2; shift; done
    if [ -n "${folders:-}" ]; then
      echo folder,gpu,device >"$out/gpus.csv"
      for folder in $folders; do
        mkdir -p "$out/$folder" && echo "$folder,${folder:3:1},H200" >>"$out/gpus.csv" && echo rows >>"$out/$folder/sweep.csv"
      done
      [ -z "${DEAD:-}" ] || rm "$out/$DEAD/sweep.csv"
      exit "${SWEEP_CODE:-0}"
    fi
    [ "${SWEEP_CODE:-0}" -gt 1 ] && [ -z "${LEAVE_ROWS:-}" ] || echo rows >>"$out/sweep.csv"
    exit "${SWEEP_CODE:-0}" ;;
  roofline) echo "the table"; exit 0 ;;
esac
"""


def run(*command, **environment):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
                          env={**os.environ, **environment})


def executable(path, text):
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("script", ["setup", "sweep", "test", "ab", "bundle", "wheel", "slurm-sweep", "slurm_task.sh", "fuzz", "../.ci/run", "../tests/slurm/run", "bundle_run.sh", "record"])
def test_help_is_the_header(script, tmp_path):
    path = SCRIPTS / script
    if script == "bundle_run.sh":  # lies beside scripts/ in a bundle
        (tmp_path / "scripts").symlink_to(SCRIPTS)
        path = executable(tmp_path / "run.sh", path.read_text())
    result = run(path, "--help")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("usage: ")
    assert "set -euo" not in result.stdout


@pytest.mark.parametrize(
    "command, says",
    [
        (["setup", "--chek"], "unknown argument '--chek'"),
        (["test", "--gpus"], "unknown argument '--gpus'"),
        (["test", "--filter"], "--filter needs"),
        (["fuzz", "--seconds", "0"], "--seconds needs a whole number"),
        (["fuzz", "problem_txt"], "there is no target 'problem_txt'"),
        (["bundle", "--output"], "--output needs"),
        (["wheel", "--architectures"], "--architectures needs"),
    ],
)
def test_wrong_arguments_are_named(command, says):
    result = run(SCRIPTS / command[0], *command[1:])
    assert result.returncode == 2
    assert says in result.stderr


def preset_with(path, **environment):
    text = f'set -euo pipefail; . "{SCRIPTS}/lib.sh"; choose_preset; echo "$preset"'
    environment = {"PATH": f"{path}:{os.environ['PATH']}", "NOISEFLOOR_PRESET": "", **environment}
    return run("bash", "-c", text, **environment)


def test_a_gpu_and_a_toolkit_choose_cuda(tmp_path):
    executable(tmp_path / "nvidia-smi", "#!/bin/sh\necho NVIDIA H200; echo NVIDIA H200\n")
    nvcc = executable(tmp_path / "nvcc", "#!/bin/sh\n")
    result = preset_with(tmp_path, CUDACXX=str(nvcc))
    assert result.stdout == "cuda\n", result.stderr
    assert "2 x NVIDIA H200" in result.stderr


def test_no_gpu_chooses_host_and_says_so(tmp_path):
    executable(tmp_path / "nvidia-smi", "#!/bin/sh\necho 'No devices were found'; exit 6\n")
    result = preset_with(tmp_path)
    assert result.stdout == "host\n", result.stderr
    assert "no GPU" in result.stderr


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


@pytest.mark.parametrize(
    "filter, gpu, selection, gpu_filter",
    [
        ("", True, "", ""),
        ("groupnorm", True, "-R groupnorm", ""),
        ("attention", True, "-R (attention)|^gpu_tests$", "attention"),
        ("gpu_tests", True, "-R gpu_tests", ""),
        ("^gpu_|Own", True, "-R ^gpu_|Own", ""),  # the whole of gpu_tests is asked for
        ("groupnorm", False, "-R groupnorm", ""),
        ("attention", False, None, None),
        ("nothing", True, None, None),
    ],
)
def test_a_filter_chooses_tests(tmp_path, filter, gpu, selection, gpu_filter):
    ctest = executable(tmp_path / "ctest", CTEST)
    (tmp_path / "bin").mkdir()
    if gpu:
        executable(tmp_path / "bin" / "gpu_tests", GPU_TESTS)
    text = (f'set -euo pipefail; . "{SCRIPTS}/lib.sh"; step="running the tests"; choose_tests {ctest} {tmp_path} "$1" ""; '
            'echo "${selection[*]}"; echo "${NOISEFLOOR_TEST_FILTER:-}"')
    result = run("bash", "-c", text, "test", filter)
    if selection is None:
        assert result.returncode == 2
        assert f"no test's name matches '{filter}'" in result.stderr
    else:
        assert result.stdout == f"{selection}\n{gpu_filter}\n", result.stderr


class Sweep:
    def __init__(self, folder):
        self.folder = folder
        self.calls = folder / "calls"
        self.program = executable(folder / "program", PROGRAM)
        self.runs = folder / "runs"

    def __call__(self, *arguments, **environment):
        self.calls.write_text("")
        text = f'set -euo pipefail; . "{SCRIPTS}/lib.sh"; . "{SCRIPTS}/measure.sh"; sweep_and_report "$@"'
        return run("bash", "-c", text, "sweep", self.program, self.runs, *arguments, CALLS=str(self.calls), **environment)

    def called(self):
        return [line for line in self.calls.read_text().splitlines() if line != "--version"]

    def folders(self):
        return sorted(self.runs.iterdir()) if self.runs.exists() else []


@pytest.fixture
def sweep(tmp_path):
    return Sweep(tmp_path)


def test_a_sweep_ends_with_the_table(sweep):
    result = sweep("--ops", "gemm")
    assert result.returncode == 0, result.stderr
    [folder] = sweep.folders()
    assert sweep.called() == [f"sweep --ops gemm --out {folder}", f"roofline {folder}"]
    assert result.stdout == "the table\n"
    assert str(folder) in result.stderr
    assert not (folder / ".unfinished").exists()


def test_a_sweep_cut_short_goes_on_in_its_folder(sweep):
    assert sweep(SWEEP_CODE="2", LEAVE_ROWS="1").returncode == 2
    [folder] = sweep.folders()
    assert sweep().returncode == 0
    assert sweep.called()[0] == f"sweep --out {folder}"
    assert (folder / "sweep.csv").read_text() == "rows\nrows\n"


@pytest.mark.parametrize("arguments", [["--fresh"], ["--ops", "gemm"]])
def test_another_command_begins_anew(sweep, arguments):
    sweep.runs.mkdir()
    old = sweep.runs / "2000-01-01_00-00-00"
    old.mkdir()
    (old / ".unfinished").write_text("noisefloor 0 (abc) ''\n")
    assert sweep(*arguments).returncode == 0
    assert len(sweep.folders()) == 2


def test_two_sweeps_in_one_folder_at_once(sweep, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / ".unfinished").write_text("the other's\n")
    with held(out / ".session"):
        result = sweep("--out", out)
        assert result.returncode == 2 and f"another sweep is writing to {out}" in result.stderr
        assert sweep.called() == [] and (out / ".unfinished").read_text() == "the other's\n"


def test_a_refused_sweep_leaves_no_folder(sweep):
    assert sweep("--opps", SWEEP_CODE="2").returncode == 2
    assert sweep.folders() == []


def test_incorrect_rows_still_get_their_table_and_exit_1(sweep):
    result = sweep(SWEEP_CODE="1")
    assert result.returncode == 1
    assert result.stdout == "the table\n"


def test_all_gpus_get_a_table_each(sweep, tmp_path):
    out = tmp_path / "out"
    result = sweep("--device", "all", "--out", out)
    assert result.returncode == 0, result.stderr
    calls = sweep.called()
    assert calls == [f"sweep --device all --out {out}", f"roofline {out}/gpu0-h200", f"roofline {out}/gpu1-h200"]
    assert not (out / ".unfinished").exists()


def test_a_gpu_that_dies_leaves_the_others_their_rows(sweep, tmp_path):
    out = tmp_path / "out"
    result = sweep("--device=all", "--device", "all", "--out", out, SWEEP_CODE="2", DEAD="gpu0-h200")
    assert result.returncode == 2
    assert [call.split()[-1] for call in sweep.called()[1:]] == [f"{out}/gpu1-h200"]
    assert (out / ".unfinished").exists()


def test_all_gpus_of_a_machine_without_one(sweep, tmp_path):
    out = tmp_path / "out"
    result = sweep("--device", "all", "--out", out, SWEEP_CODE="2", FOLDERS="")
    assert result.returncode == 2
    assert not out.exists()


def test_an_unwritable_folder_is_named(sweep):
    result = sweep("--out", "/proc/nowhere")
    assert result.returncode == 2
    assert "cannot write the run folder /proc/nowhere" in result.stderr


# Stands in for lib.sh: nothing is set up or built, and the program says what it is asked for.
LIB = """root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
setup() { :; }; build() { :; }; export_cuda_library_path() { :; }; choose_preset() { preset=host; }
"""


@pytest.mark.parametrize(
    "arguments, asked",
    [
        ([], "digits --out {root}/samples/digits.png --count 100"),
        (["--seed", "3"], "digits --seed 3 --out {root}/samples/digits.png --count 100"),
        (["--video"], "moving-digits --out {root}/samples/moving-digits.png --count 20 --zoom 4 --gif {root}/samples/moving-digits.gif"),
        (["--video", "--count", "3", "--out", "v.png"], "moving-digits --count 3 --out v.png --zoom 4"),
        (["adm64", "--weights", "w", "--out", "a.png"], "adm64 --weights w --out a.png"),
    ],
)
def test_a_sample_is_asked_for(tmp_path, arguments, asked):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "build" / "host" / "bin").mkdir(parents=True)
    (tmp_path / "scripts" / "lib.sh").write_text(LIB)
    executable(tmp_path / "build" / "host" / "bin" / "noisefloor", '#!/usr/bin/env bash\necho "$*"\n')
    result = run(executable(tmp_path / "scripts" / "sample", (SCRIPTS / "sample").read_text()), *arguments)
    assert result.stdout == f"sample {asked}\n".format(root=tmp_path), result.stderr
