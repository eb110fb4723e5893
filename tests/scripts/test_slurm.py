"""scripts/slurm-sweep and its tasks, with stand-ins for sbatch, squeue and noisefloor; tests/slurm/run has a real Slurm."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.machine import ROOT, Machine, executable

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


class Site(Machine):
    def __init__(self, folder):
        super().__init__(folder)
        self.calls, self.tree, self.out = folder / "calls", folder / "a tree", folder / "the run"
        self.calls.write_text("")
        self.binary = executable(self.tree / "build/host/bin/noisefloor", PROGRAM)
        shutil.copytree(ROOT / "scripts", self.tree / "scripts")
        self.program("sbatch", SBATCH)
        self.program("squeue", '#!/bin/sh\n[ -z "$QUEUED" ] || echo "$QUEUED"\n[ -z "$FAILS" ] || { echo "$FAILS" >&2; exit 1; }\n')
        self.environment |= {"CALLS": str(self.calls), "NOISEFLOOR_PYTHON": ""}  # no Python here has a PyTorch that sees a GPU

    def submit(self, *arguments, **environment):
        self.calls.write_text("")
        result = self.run(self.tree / "scripts/slurm-sweep", "--out", self.out, *arguments, **environment)
        return result, self.calls.read_text().splitlines()

    def shard(self, index, count, *arguments, kind="gpu", **environment):
        return self.run(self.tree / "scripts/slurm-sweep", "--job", "shard", self.binary, self.out / kind, count, *arguments,
                        SLURM_ARRAY_TASK_ID=str(index), **environment)

    def merge(self, kind="gpu", **environment):
        return self.run(self.tree / "scripts/slurm-sweep", "--job", "merge", self.binary, self.out / kind, **environment)


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def wrapped(call):
    """What the job runs, as sh reads it."""
    return shlex.split(call.split(" --wrap ")[1])


def test_an_array_and_a_merge_for_each_kind_of_gpu(site):
    result, calls = site.submit("--gpus", "h200,a100", "--array-size=4", "--at-once", "2", "--partition", "gpu", "--constraint=nvlink",
                                "--time", "1:00:00", "--sbatch", "--nice=5", "--", "--networks", "all", "--filter", "it's")
    assert result.returncode == 0, result.stderr
    assert len(calls) == 4
    for kind, array, merge, job in (("h200", calls[0], calls[1], 101), ("a100", calls[2], calls[3], 103)):
        folder = site.out / kind
        assert f"--array=1,2,3,4%2 --output={folder}/logs/%a.log" in array and f"--gres=gpu:{kind}:1" in array
        assert "--partition=gpu --constraint=nvlink --time=1:00:00 --nice=5" in array
        script = [f"{site.tree}/scripts/slurm-sweep", "--job"]
        assert wrapped(array)[1:] == [*script, "shard", str(site.binary), str(folder), "4", "--networks", "all", "--filter", "it's"]
        assert f"--dependency=afterany:{job}" in merge and "--partition=gpu" in merge and "gres" not in merge and "--time" not in merge
        assert wrapped(merge)[1:] == [*script, "merge", str(site.binary), str(folder)]
        assert f"{kind}: job {job}, 4 of 4 shards" in result.stderr


def test_only_what_is_missing_is_submitted_again(site):
    assert site.submit("--array-size", "3")[0].returncode == 0
    nothing = site.merge()
    assert nothing.returncode == 2 and "no shard has any rows" in nothing.stderr
    assert site.shard(1, 3).returncode == 0
    assert site.shard(2, 3, CODE="137").returncode == 2  # killed
    assert site.shard(3, 3, CODE="1").returncode == 1  # an incorrect case is a result
    result, calls = site.submit()
    assert result.returncode == 0 and "1 of 3 shards" in result.stderr and "--array=2 " in calls[0]
    site.calls.write_text("")
    assert site.shard(2, 3, "--ops", "gemm").returncode == 0
    assert site.calls.read_text() == f"sweep --ops gemm --shard 2/3 --out {site.out}/gpu/shards/0002\n"
    assert site.merge(CODE="2").returncode == 2
    result, calls = site.submit()
    assert len(calls) == 1 and wrapped(calls[0])[3] == "merge" and "--dependency" not in calls[0]
    site.calls.write_text("")
    assert site.merge(CODE="1").returncode == 1
    assert site.calls.read_text().startswith(f"merge {' '.join(f'{site.out}/gpu/shards/000{shard}' for shard in (1, 2, 3))} --out {site.out}/gpu/merged")
    result, calls = site.submit()
    assert calls == [] and "nothing is missing" in result.stderr and result.returncode == 1  # as the merge had it


def test_host_variants_get_a_node_each(site):
    result, calls = site.submit("--host", "--array-size", "2")
    assert result.returncode == 0
    assert "--exclusive" in calls[0] and "gres" not in calls[0] and wrapped(calls[0])[-3:] == ["2", "--device", "host"]


@pytest.mark.parametrize("queue, says", [({"QUEUED": "101"}, "still queued or running: 101"), ({"FAILS": "no controller"}, "no controller")])
def test_jobs_that_are_or_may_be_queued_are_left_alone(site, queue, says):
    site.submit("--array-size", "2")
    result, calls = site.submit(**queue)
    assert result.returncode == 2 and calls == [] and says in result.stderr, "a second array would write into the same folders"


def test_a_kind_that_is_refused_leaves_the_others(site):
    result, calls = site.submit("--gpus", "h300,h200", REFUSE="gpu:h300:1")
    assert result.returncode == 2 and "sbatch refused: sbatch: error: no such thing" in result.stderr
    assert sum("gpu:h200:1" in call for call in calls) == 1 and len(calls) == 3


def test_another_split_or_selection_is_another_folder(site):
    site.submit("--array-size", "2", "--", "--ops", "gemm")
    for other in (("--array-size", "3", "--", "--ops", "gemm"), ("--", "--ops", "groupnorm")):
        result, calls = site.submit(*other)
        assert result.returncode == 2 and calls == [] and "is split into 2 arguments: '--ops' 'gemm'" in result.stderr


@pytest.mark.parametrize("arguments", [(), ("--ops", "gemm", "--filter", "it's")])
def test_a_folder_of_the_version_before_goes_on(site, arguments):
    site.submit("--array-size", "2", "--", *arguments)
    (site.out / "gpu/split").write_text("2\n" + subprocess.run(["bash", "-c", "printf '%q ' \"$@\"", "", *arguments], capture_output=True, text=True).stdout + "\n")
    assert site.submit("--", *arguments)[0].returncode == 0
    (site.out / "gpu/split").write_text("2\n--ops conv2d \n")
    assert site.submit("--", *arguments)[0].returncode == 2


def test_an_answer_that_is_no_job_and_a_job_that_is_none_are_refused(site):
    executable(site.tools / "sbatch", "#!/bin/sh\necho maybe later\n")
    result, _ = site.submit("--array-size", "2")
    assert result.returncode == 2 and "sbatch answered 'maybe later'" in result.stderr and "merge" not in result.stderr
    result = site.run(site.tree / "scripts/slurm-sweep", "--job", "shrad", site.binary, site.out / "gpu", "2")
    assert result.returncode == 2 and "'shrad'" in result.stderr


def test_a_dry_run_submits_nothing(site):
    result, calls = site.submit("--gpus", "h200", "--array-size", "2", "--dry-run", "--", "--networks", "all", PATH=os.environ["PATH"])
    assert result.returncode == 0 and calls == []
    lines = [shlex.split(line) for line in result.stdout.splitlines()]
    assert [line[0] for line in lines] == ["sbatch", "sbatch"] and shlex.split(lines[0][-1])[1] == f"{site.tree}/scripts/slurm-sweep"
    assert not (site.out / "h200/split").exists()


@pytest.mark.parametrize("left", [1, None])
def test_waiting_ends_with_what_the_merge_left(site, left):
    (site.out / "gpu/logs").mkdir(parents=True)
    (site.out / "gpu/merged").mkdir()
    left_by_merge = f"echo {left} >'{site.out}/gpu/merged/.finished'" if left else f"echo error while >'{site.out}/gpu/logs/merge.log'"
    executable(site.tools / "sbatch", f'#!/bin/sh\necho 7\ncase "$*" in *--wait*) {left_by_merge};; esac\n')
    result, _ = site.submit("--wait")
    assert result.returncode == (left or 2) and "the merge ended with exit code" in result.stderr, result.stderr


@pytest.mark.parametrize("arguments, says", [
    (["--array-size", "0"], "--array-size is '0'"), (["--gpus", "h200;rm"], "--gpus is 'h200;rm'"), (["--gpus", "h200", "--gres", "gpu:1"], "give one of"),
    (["--host", "--gpus", "h200"], "give one of"), (["--gpu", "h200"], "unknown argument '--gpu'"), (["sweep"], "unknown argument 'sweep'"),
    (["--gpus"], "--gpus needs a value"), (["--", "--out", "x"], "takes no --out"), (["--", "--shard=1/2"], "takes no --out"),
    (["--", "--budget", "5"], "give --time"), (["--", "--device", "all"], "--device all"), (["--", "--device=all"], "--device all"),
])
def test_wrong_arguments_are_named(arguments, says, site):
    result, calls = site.submit(*arguments)
    assert result.returncode == 2 and calls == [] and says in result.stderr
    assert not site.out.exists()


def test_without_an_out_a_build_or_slurm(site):
    result = site.run(site.tree / "scripts/slurm-sweep")
    assert result.returncode == 2 and "--out DIR is missing" in result.stderr
    (site.tools / "squeue").unlink()
    path = f"{site.tools}:" + ":".join(p for p in os.environ["PATH"].split(":") if not (Path(p) / "squeue").exists())
    if any((Path(p) / "bash").exists() for p in path.split(":")):
        result, _ = site.submit(PATH=path)
        assert result.returncode == 2 and "no sbatch on PATH" in result.stderr
    site.binary.unlink()
    result, _ = site.submit()
    assert result.returncode == 2 and "nothing is built" in result.stderr


def test_a_bundle_runs_its_own_program(site):
    program = executable(site.tree / "bin/noisefloor", PROGRAM)
    executable(site.tree / "run.sh", "")
    _, calls = site.submit("--array-size", "1")
    assert wrapped(calls[0])[4] == str(program)
