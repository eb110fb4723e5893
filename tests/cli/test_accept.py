"""gate accept: when a candidate becomes the baseline, and what of both stays."""

import shutil
import subprocess

import pytest

from tests.cli.gated_runs import accept, baseline, contents, gate, write_run  # noqa: F401
from tests.cli.program import PROGRAM, needs_program

pytestmark = needs_program


def test_accept_makes_the_candidate_the_baseline(baseline, tmp_path):
    (baseline / "README.md").write_text("kept\n")
    for name in ("roofline.csv", "cases.csv", "shard.json"):
        (baseline / name).write_text("of the old run\n")
    slower = write_run(tmp_path / "b", [60.0] * 21, seed=1, commit="def")
    (slower / "cases.csv").write_text("op,dtype,problem,variant\n")
    result = accept(baseline, slower)
    assert result.returncode == 0 and "20 regressed" in result.stdout and "is the run of commit def now" in result.stdout
    assert (baseline / "README.md").read_text() == "kept\n" and not (baseline / "roofline.csv").exists() and not (baseline / "shard.json").exists()
    for name in ("sweep.csv", "samples.jsonl", "env.json", "cases.csv"):
        assert (baseline / name).read_bytes() == (slower / name).read_bytes()
    assert gate(baseline, slower).returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"], "nothing is left beside it"

    first = accept(tmp_path / "new" / "place", slower)
    assert first.returncode == 0, first
    assert gate(tmp_path / "new" / "place", slower).returncode == 0


def test_accept_refuses_what_is_not_a_baseline(baseline, tmp_path):
    good = write_run(tmp_path / "b", [50.0] * 20)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("mine\n")
    broke = write_run(tmp_path / "c", [50.0] * 20, status={3: "cuda_error"})
    fewer = write_run(tmp_path / "d", [50.0] * 19)
    before = contents(tmp_path)
    for a, b, code in ((foreign, good, 2), (baseline, broke, 1), (baseline, fewer, 2), (baseline, baseline, 2), (tmp_path / "x", broke, 2)):
        assert accept(a, b).returncode == code
        assert contents(tmp_path) == before and not (tmp_path / "x").exists()


def test_an_empty_folder_takes_the_first_baseline(tmp_path):
    """Also one with what a file system or gate calibrate keeps there."""
    base = tmp_path / "base"
    (base / "lost+found").mkdir(parents=True)
    (base / "gate_noise.json").write_text("{}")
    good = write_run(tmp_path / "b", [50.0] * 20)
    result = accept(base, good)
    assert result.returncode == 0, result.stderr
    assert (base / "sweep.csv").read_bytes() == (good / "sweep.csv").read_bytes() and (base / "gate_noise.json").read_text() == "{}"


def test_a_mount_point_takes_baselines(tmp_path):
    """Nothing can be put in its place: its files are, and none is left beside them."""
    base, other = tmp_path / "base", write_run(tmp_path / "c", [51.0] * 20, seed=1, commit="def")
    base.mkdir()
    (base / "README.md").write_text("hidden by the mount\n")
    good = write_run(tmp_path / "b", [50.0] * 20)
    commands = [f'mount -t tmpfs tmpfs "{base}"'] + [f'"{PROGRAM}" gate accept --baseline "{base}" --candidate "{run}"' for run in (good, other)]
    done = subprocess.run(["unshare", "--mount", "--map-root-user", "sh", "-c", " && ".join([*commands, f'echo kept; cat "{base}/sweep.csv"; ls -A "{base}"'])],
                          capture_output=True, text=True)
    if "Operation not permitted" in done.stderr or "ermission denied" in done.stderr or "unshare failed" in done.stderr:
        pytest.skip("no mounts here")
    assert done.returncode == 0, done.stderr
    kept = done.stdout.partition("kept\n")[2]
    assert kept.startswith((other / "sweep.csv").read_text()) and ".partial" not in kept


def test_a_run_in_doubt_wants_force(baseline, tmp_path):
    """One that was interrupted, as a first baseline and later; what an accepted one lacks is then asked of the candidate. And one that is much faster."""
    fast = write_run(tmp_path / "fast", [10.0] * 20, seed=2)
    before, refused = contents(baseline), accept(baseline, fast)
    assert refused.returncode == 2 and "0.20 times the baseline's time" in refused.stderr and contents(baseline) == before
    taken = accept(shutil.copytree(baseline, tmp_path / "slow"), fast, "--force")
    assert taken.returncode == 0 and "warning" in taken.stderr and "accepted" in taken.stdout
    half = write_run(tmp_path / "half", [50.0] * 10, seed=1)
    with open(half / "cases.csv", "w") as file:
        file.write("op,dtype,problem,variant\n" + "".join(f'gemm,bf16,"m={i + 1},n=64,k=64",ptx\n' for i in range(20)))
    for base in (tmp_path / "first", write_run(tmp_path / "ten", [50.0] * 10)):
        refused = accept(base, half)
        assert refused.returncode == 2 and "10 of its cases" in refused.stderr and "--force" in refused.stderr, refused
    result = gate(baseline, half)
    assert result.returncode == 2 and result.stdout.count("missing in the candidate") == 10
    assert accept(tmp_path / "first", half, "--force").returncode == 0
    again = gate(tmp_path / "first", half)
    assert again.returncode == 2 and again.stdout.count("chosen for the candidate and not measured") == 10, again.stdout
