"""gate accept: when a candidate becomes the baseline, and what of both stays."""

import csv
import subprocess

import pytest

from tests.cli.gated_runs import accept, baseline, contents, gate, write_run  # noqa: F401
from tests.cli.program import PROGRAM, needs_program

pytestmark = needs_program


def test_accept_makes_the_candidate_the_baseline(baseline, tmp_path):
    (baseline / "README.md").write_text("kept\n")
    (baseline / "roofline.csv").write_text("of the old run\n")
    slower = write_run(tmp_path / "b", [60.0] * 21, seed=1, commit="def")
    result = accept(baseline, slower)
    assert result.returncode == 0 and "20 regressed" in result.stdout and "is the run of commit def now" in result.stdout
    assert (baseline / "README.md").read_text() == "kept\n" and not (baseline / "roofline.csv").exists()
    for name in ("sweep.csv", "samples.jsonl", "env.json"):
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


def test_an_interrupted_run_wants_force(baseline, tmp_path):
    """As a first baseline and later; what an accepted one lacks is then asked of the candidate."""
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


def test_accepting_takes_all_files_of_a_run(baseline, tmp_path):
    for name in ("cases.csv", "shard.json"):
        (baseline / name).write_text("old")
    better = write_run(tmp_path / "b", [50.0] * 20, seed=1)
    (better / "cases.csv").write_text("op,dtype,problem,variant\n")
    assert accept(baseline, better).returncode == 0
    assert (baseline / "cases.csv").read_bytes() == (better / "cases.csv").read_bytes()
    assert not (baseline / "shard.json").exists()


def loaded(folder, load):
    """The run as if other programs had had so many threads to run."""
    with open(folder / "sweep.csv", newline="") as file:
        rows = [{**row, "load": load} for row in csv.DictReader(file)]
    with open(folder / "sweep.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return folder


@pytest.mark.parametrize("first", [True, False])
def test_accept_of_a_loaded_run_wants_force(tmp_path, first):
    base = tmp_path / "base"
    if not first:
        write_run(base, [100, 200], seed=1)
    before = contents(base) if base.exists() else None
    busy = loaded(write_run(tmp_path / "busy", [100, 200], seed=2), 1.9)
    refused = accept(base, busy)
    assert refused.returncode == 2 and "other programs (1.9 of their threads could run)" in refused.stderr and "--force" in refused.stderr
    assert (contents(base) if base.exists() else None) == before
    taken = accept(base, busy, "--force")
    assert taken.returncode == 0 and "warning" in taken.stderr and "accepted" in taken.stdout
    quiet = loaded(write_run(tmp_path / "quiet", [100, 200], seed=3), 0.05)
    result = accept(base, quiet)
    assert result.returncode == 0, result.stderr


def test_accept_of_a_throttled_or_much_faster_run_wants_force(tmp_path):
    throttled = write_run(tmp_path / "throttled", [100, 200, 300], status={1: "throttled"})
    refused = accept(tmp_path / "base", throttled)
    assert refused.returncode == 2 and "1 of its rows is throttled" in refused.stderr and not (tmp_path / "base").exists()
    base = write_run(tmp_path / "slow", [300, 600, 900], seed=1)
    fast = write_run(tmp_path / "fast", [100, 200, 300], seed=2)
    refused = accept(base, fast)
    assert refused.returncode == 2 and "0.33 times the baseline's time" in refused.stderr
    assert accept(base, fast, "--force").returncode == 0
