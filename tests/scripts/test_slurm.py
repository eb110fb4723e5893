"""scripts/slurm-sweep and its tasks, with stand-ins for sbatch, squeue and noisefloor; tests/slurm/run has a real Slurm."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SBATCH = """#!/usr/bin/env bash
echo "$*" >>"$CALLS"
[ -z "${REFUSE:-}" ] || { [[ "$*" != *"$REFUSE"* ]] || { echo "sbatch: error: no such thing" >&2; exit 1; }; }
echo "a warning" >&2
echo "$((100 + $(wc -l <"$CALLS")));cluster"
"""
# Says what was called, leaves the rows of a sweep, and merges.
PROGRAM = """#!/usr/bin/env bash
echo "$*" >>"$CALLS"
while [ $# -gt 0 ]; do
  case "$1" in
    --out) out=$2 ;;
    sweep | merge) command=$1 ;;
  esac
  shift
done
[ -z "${command:-}" ] || { mkdir -p "$out"; echo rows >"$out/sweep.csv"; exit "${CODE:-0}"; }
"""


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


class Site:
    def __init__(self, folder):
        self.folder = folder
        self.calls = folder / "calls"
        self.calls.write_text("")
        self.tree = folder / "a tree"
        self.program = executable(self.tree / "build/host/bin/noisefloor", PROGRAM)
        shutil.copytree(ROOT / "scripts", self.tree / "scripts")
        self.out = folder / "the run"
        self.bin = folder / "bin"
        executable(self.bin / "sbatch", SBATCH)
        executable(self.bin / "squeue", '#!/bin/sh\n[ -z "$QUEUED" ] || echo "$QUEUED"\n[ -z "$FAILS" ] || { echo "$FAILS" >&2; exit 1; }\n')

    def run(self, *command, **environment):
        # No Python here has a PyTorch that sees a GPU.
        environment = {"PATH": f"{self.bin}:{os.environ['PATH']}", "CALLS": str(self.calls), "NOISEFLOOR_PYTHON": "", **environment}
        return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
                              env={**os.environ, **environment})

    def submit(self, *arguments, **environment):
        self.calls.write_text("")
        result = self.run(self.tree / "scripts/slurm-sweep", "--out", self.out, *arguments, **environment)
        return result, [line for line in self.calls.read_text().splitlines()]

    def part(self, index, count, *arguments, kind="h200", **environment):
        return self.run(ROOT / "scripts/slurm_task.sh", self.tree, self.program, "part", self.out / kind, count, *arguments,
                        SLURM_ARRAY_TASK_ID=str(index), **environment)

    def merge(self, count, kind="h200", **environment):
        return self.run(ROOT / "scripts/slurm_task.sh", self.tree, self.program, "merge", self.out / kind, count, SLURM_JOB_ID="9", **environment)


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def test_an_array_and_a_merge_for_each_kind_of_gpu(site):
    result, calls = site.submit("--gpus", "h200,a100", "--array-size=4", "--at-once", "2", "--partition", "gpu", "--constraint=nvlink",
                                "--time", "1:00:00", "--sbatch", "--nice=5", "--", "--networks", "all")
    assert result.returncode == 0, result.stderr
    assert len(calls) == 4
    for kind, array, merge, job in (("h200", calls[0], calls[1], 101), ("a100", calls[2], calls[3], 103)):
        folder = site.out / kind
        assert f"--array=1,2,3,4%2 --output={folder}/logs/%a.log" in array and f"--gres=gpu:{kind}:1" in array
        assert "--partition=gpu --constraint=nvlink --time=1:00:00 --nice=5" in array
        assert array.endswith(f"{site.tree}/scripts/slurm_task.sh {site.tree} {site.program} part {folder} 4 --networks all")
        assert f"--dependency=afterany:{job}" in merge and "--partition=gpu" in merge and "gres" not in merge and "--time" not in merge
        assert merge.endswith(f"merge {folder} 4")
        assert f"{kind}: job {job}, 4 of 4 parts" in result.stderr


def test_only_what_is_missing_is_submitted_again(site):
    assert site.submit("--gpus", "h200", "--array-size", "3")[0].returncode == 0
    assert site.part(1, 3).returncode == 0
    assert site.part(2, 3, CODE="137").returncode == 2  # killed
    assert site.part(3, 3, CODE="1").returncode == 1  # an incorrect case is a result
    result, calls = site.submit("--gpus", "h200")
    assert result.returncode == 0 and "1 of 3 parts" in result.stderr
    assert "--array=2 " in calls[0]
    assert site.part(2, 3).returncode == 0
    assert site.merge(3, CODE="1").returncode == 1
    result, calls = site.submit("--gpus", "h200")
    assert calls == [] and "nothing is missing" in result.stderr
    assert result.returncode == 1  # as the merge had it


def test_a_merge_that_failed_is_submitted_alone(site):
    assert site.submit("--array-size", "1")[0].returncode == 0
    assert site.part(1, 1, kind="gpu").returncode == 0
    assert site.merge(1, kind="gpu", CODE="2").returncode == 2
    assert (site.out / "gpu/logs/merge.9").read_text() == "2\n"
    result, calls = site.submit()
    assert len(calls) == 1 and calls[0].endswith("merge " + str(site.out / "gpu") + " 1") and "--dependency" not in calls[0]


def test_a_merge_of_nothing(site):
    site.submit("--array-size", "2")
    result = site.merge(2, kind="gpu")
    assert result.returncode == 2 and "no part has any rows" in result.stderr


def test_a_part_gets_its_shard_and_folder(site):
    site.submit("--array-size", "12")
    site.calls.write_text("")
    assert site.part(7, 12, "--ops", "gemm", kind="gpu").returncode == 0
    assert site.calls.read_text() == f"sweep --ops gemm --shard 7/12 --out {site.out}/gpu/shards/0007\n"


def test_host_variants_get_a_node_each(site):
    result, calls = site.submit("--host", "--array-size", "2")
    assert result.returncode == 0
    assert "--exclusive" in calls[0] and "gres" not in calls[0] and calls[0].endswith(f"{site.out}/host 2 --device host")


def test_jobs_that_are_still_queued_are_left_alone(site):
    site.submit("--array-size", "2")
    result, calls = site.submit(QUEUED="101")
    assert result.returncode == 2 and calls == []
    assert "still queued or running: 101" in result.stderr


def test_an_error_of_squeue_is_no_empty_queue(site):
    site.submit("--array-size", "2")
    down = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
    result, calls = site.submit(FAILS=down)
    assert result.returncode == 2 and calls == [], "a second array would write into the same folders"
    assert "Unable to contact slurm controller" in result.stderr
    result, calls = site.submit(FAILS="slurm_load_jobs error: Invalid job id specified")  # over, and forgotten
    assert result.returncode == 0 and len(calls) == 2
    result, calls = site.submit(QUEUED="squeue: warning: a plugin is old")
    assert result.returncode == 0 and len(calls) == 2


def test_a_kind_that_is_refused_leaves_the_others(site):
    result, calls = site.submit("--gpus", "h300,h200", REFUSE="gpu:h300:1")
    assert result.returncode == 2 and "sbatch refused: sbatch: error: no such thing" in result.stderr
    assert sum("h200" in call for call in calls) == 2
    result, calls = site.submit("--gpus", "h300")  # submitted after all
    assert result.returncode == 0 and len(calls) == 2


def test_another_split_or_selection_is_another_folder(site):
    site.submit("--array-size", "2", "--", "--ops", "gemm")
    result, calls = site.submit("--array-size", "3", "--", "--ops", "gemm")
    assert result.returncode == 2 and calls == [] and "is split into 2 tasks" in result.stderr
    result, calls = site.submit("--", "--ops", "groupnorm")
    assert result.returncode == 2 and calls == [] and "arguments: --ops gemm" in result.stderr


def test_a_dry_run_submits_nothing(site):
    result, calls = site.submit("--gpus", "h200", "--array-size", "2", "--dry-run", "--", "--networks", "all", PATH=os.environ["PATH"])
    assert result.returncode == 0 and calls == []
    lines = [shlex.split(line) for line in result.stdout.splitlines()]
    assert [line[0] for line in lines] == ["sbatch", "sbatch"] and lines[0][-1] == "all" and str(site.tree) in lines[0]
    assert not (site.out / "h200/split").exists()


def test_waiting_ends_with_what_the_merge_left(site):
    (site.out / "gpu/logs").mkdir(parents=True)
    (site.out / "gpu/logs/merge.102").write_text("1\n")
    result, _ = site.submit("--wait", NOISEFLOOR_SLURM_POLL="0.1")
    assert result.returncode == 1 and "the merge ended with exit code 1" in result.stderr
    (site.out / "gpu/logs/merge.102").unlink()
    result, _ = site.submit("--wait", NOISEFLOOR_SLURM_POLL="0.1")
    assert result.returncode == 2


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--array-size", "0"], "--array-size is '0', not a whole number"),
        (["--array-size", "many"], "--array-size is 'many'"),
        (["--at-once", "-1"], "--at-once is '-1'"),
        (["--gpus", "h200;rm"], "--gpus is 'h200;rm', not names"),
        (["--gpus", "h200", "--gres", "gpu:1"], "give --gpus or --gres, not both"),
        (["--host", "--gpus", "h200"], "--host is without"),
        (["--gpu", "h200"], "unknown argument '--gpu'"),
        (["sweep"], "unknown argument 'sweep'"),
        (["--gpus"], "--gpus needs a value"),
        (["--", "--out", "x"], "'--out' cannot be given"),
        (["--", "--shard=1/2"], "cannot be given"),
        (["--", "--budget", "5"], "give --time"),
        (["--", "--device", "all"], "--device all cannot be split"),
        (["--", "--device=all"], "--device all cannot be split"),
    ],
)
def test_wrong_arguments_are_named(arguments, says, site):
    result, calls = site.submit(*arguments)
    assert result.returncode == 2 and calls == []
    assert says in result.stderr
    assert not site.out.exists()


def test_without_an_out_a_build_or_slurm(site):
    result = site.run(site.tree / "scripts/slurm-sweep")
    assert result.returncode == 2 and "--out DIR is missing" in result.stderr
    (site.bin / "sbatch").unlink()
    path = f"{site.bin}:" + ":".join(p for p in os.environ["PATH"].split(":") if not (Path(p) / "sbatch").exists())
    if any((Path(p) / "bash").exists() for p in path.split(":")):
        result, _ = site.submit(PATH=path)
        assert result.returncode == 2 and "no sbatch on PATH" in result.stderr
    site.program.unlink()
    result, _ = site.submit()
    assert result.returncode == 2 and "nothing is built" in result.stderr


def test_a_bundle_runs_its_own_program(site):
    program = executable(site.tree / "bin/noisefloor", PROGRAM)
    executable(site.tree / "run.sh", "")
    _, calls = site.submit("--array-size", "1")
    assert f" {program} part " in calls[0]
