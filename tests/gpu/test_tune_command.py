"""noisefloor tune and the table made of its times, on a GPU that runs what is timed; skipped elsewhere.

In a bundle: run.sh exec env NOISEFLOOR_BINARY=bin/noisefloor python3 -m pytest -rs tests/gpu/test_tune_command.py
"""

import csv
import sys
from collections import defaultdict

import pytest

from tests.gpu.program import PROGRAM, ROOT, need_gpu, run

WRITER = ROOT / "tools/tuned_table.py"
PROBLEMS = """network,n,hw,channels,groups,fusion,slab_stats,packed,count
one,1,64,128,32,silu,,,1
one,1,64,128,32,none,,,2
one,2,256,256,32,silu,given,,1
"""


@pytest.fixture(scope="module")
def timings(tmp_path_factory):
    need_gpu("sm_90")
    folder = tmp_path_factory.mktemp("tune")
    (folder / "problems").mkdir()
    (folder / "problems/groupnorm.csv").write_text(PROBLEMS)
    result = run(PROGRAM, "tune", "groupnorm", "--problems", folder / "problems", "--out", folder / "times.csv")
    if "this build has" in result.stderr:
        pytest.skip("the program was built without sm_90a")
    assert result.returncode == 0, result.stderr
    return folder, result


def test_every_problem_has_its_best_choices_and_the_estimates(timings):
    folder, result = timings
    assert "[3/3] " in result.stderr and "(0s left)" in result.stderr and "needs slab_stats=none" in result.stderr, result.stderr
    choices = defaultdict(list)
    with open(folder / "times.csv", newline="") as file:
        for row in csv.DictReader(file):
            assert (row["variant"], row["dtype"]) == ("ptx_sm90a", "bf16") and int(row["sm_count"]) > 0
            assert 0 < float(row["warm_us"]) < 1000 and 0 < float(row["cold_us"]) < 1000
            choices[row["problem"]].append((float(row["warm_us"]), row["choice"], row["estimated"]))
    assert len(choices) == 2
    for timed in choices.values():
        assert len(timed) >= 5 and [row[2] for row in timed].count("1") == 1
        assert timed == sorted(timed, key=lambda row: row[0]), "best first"
        assert len({row[1] for row in timed}) == len(timed)


def test_a_budget_ends_it_and_keeps_what_was_timed(timings, tmp_path):
    folder, _ = timings
    result = run(PROGRAM, "tune", "groupnorm", "--problems", folder / "problems", "--out", tmp_path / "times.csv", "--budget", "1e-9")
    assert result.returncode == 0 and "3 cases left by --budget" in result.stderr, result.stderr
    assert (tmp_path / "times.csv").read_text().count("\n") == 1


def test_the_table_is_made_of_it(timings):
    if not WRITER.exists():
        pytest.skip("a bundle has no writer of the table")
    folder, _ = timings
    result = run(sys.executable, WRITER, "groupnorm", folder / "times.csv", "--problems", folder / "groupnorm.csv", "--out", folder / "table.cpp")
    # Two small problems may have nothing that beats the estimate's.
    assert result.returncode == 0 or "nothing is written" in result.stderr, result.stderr
    assert (folder / "table.cpp").exists() == (result.returncode == 0)
