"""gate --accept: when a candidate becomes the baseline, and what of both stays."""

import csv

import pytest

from tests.cli.gated_runs import baseline, contents, gate, write_run  # noqa: F401
from tests.cli.program import needs_program

pytestmark = needs_program


def test_accept_makes_the_candidate_the_baseline(baseline, tmp_path):
    (baseline / "README.md").write_text("kept\n")
    (baseline / "roofline.csv").write_text("of the old run\n")
    slower = write_run(tmp_path / "b", [60.0] * 21, seed=1, commit="def")
    result = gate(baseline, slower, "--accept")
    assert result.returncode == 0 and "20 regressed" in result.stdout and "is the run of commit def now" in result.stdout
    assert (baseline / "README.md").read_text() == "kept\n" and not (baseline / "roofline.csv").exists()
    for name in ("sweep.csv", "samples.jsonl", "env.json"):
        assert (baseline / name).read_bytes() == (slower / name).read_bytes()
    assert gate(baseline, slower).returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"], "nothing is left beside it"

    first = gate(tmp_path / "new" / "place", slower, "--accept")
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
        assert gate(a, b, "--accept").returncode == code
        assert contents(tmp_path) == before and not (tmp_path / "x").exists()
    assert gate(baseline, good, "--accept", "--filter", "m=1,").returncode == 2


def test_accepting_takes_all_files_of_a_run(baseline, tmp_path):
    for name in ("cases.csv", "shard.json"):
        (baseline / name).write_text("old")
    better = write_run(tmp_path / "b", [50.0] * 20, seed=1)
    (better / "cases.csv").write_text("new")
    assert gate(baseline, better, "--accept").returncode == 0
    assert (baseline / "cases.csv").read_text() == "new"
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
    refused = gate(base, busy, "--accept")
    assert refused.returncode == 2 and "other programs (1.9 of their threads could run)" in refused.stderr and "--force" in refused.stderr
    assert (contents(base) if base.exists() else None) == before
    taken = gate(base, busy, "--accept", "--force")
    assert taken.returncode == 0 and "warning" in taken.stderr and "accepted" in taken.stdout
    quiet = loaded(write_run(tmp_path / "quiet", [100, 200], seed=3), 0.05)
    result = gate(base, quiet, "--accept")
    assert result.returncode == 0, result.stderr


def test_accept_of_a_throttled_or_much_faster_run_wants_force(tmp_path):
    throttled = write_run(tmp_path / "throttled", [100, 200, 300], status={1: "throttled"})
    refused = gate(tmp_path / "base", throttled, "--accept")
    assert refused.returncode == 2 and "1 of its rows is throttled" in refused.stderr and not (tmp_path / "base").exists()
    base = write_run(tmp_path / "slow", [300, 600, 900], seed=1)
    fast = write_run(tmp_path / "fast", [100, 200, 300], seed=2)
    refused = gate(base, fast, "--accept")
    assert refused.returncode == 2 and "0.33 times the baseline's time" in refused.stderr
    assert gate(base, fast, "--accept", "--force").returncode == 0
    assert gate(base, fast, "--force").returncode == 2
