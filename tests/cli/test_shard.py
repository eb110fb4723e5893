"""`sweep --shard`: a shard of a sweep's problems, which resumes and is not taken for another."""

import json

import pytest

from tests.cli.program import edit_json, needs_program
from tests.cli.split_sweep import sizes, split, swept  # noqa: F401

pytestmark = needs_program


def test_parts_are_every_third_problem(swept):
    assert [sizes(swept.folder / f"shard{index}") for index in (1, 2, 3)] == [[1, 4], [2, 5], [3]]


def test_a_part_is_of_one_driver(split):
    driver = json.loads((split.folder / "shard1" / "env.json").read_text())["driver"]
    edit_json(split.folder / "shard1" / "env.json", driver="1.2")
    result = split.shard(1)
    assert result.returncode == 2 and f"holds rows of driver 1.2, this is {driver}" in result.stderr


def test_a_part_resumes_and_is_not_taken_for_another(split):
    shard = split.folder / "shard1"
    before = (shard / "sweep.csv").read_text()
    assert "2 cases are already in" in split.shard(1).stderr
    for out, more, says in [
        (shard, ["--shard", "2/3"], "is shard 1/3, this is 2/3"),
        (shard, ["--shard", "1/4"], "is shard 1/3, this is 1/4"),
        (shard, ["--shard", "1/3", "--dtypes", "fp16"], "is shard 1/3 of another choice of cases"),
        (shard, [], "is shard 1/3 of a sweep that was split"),
        (split.folder / "shard2", ["--shard", "1/1"], "is shard 2/3"),
    ]:
        result = split.sweep(out, *more)
        assert result.returncode == 2 and says in result.stderr, result.stderr
    assert (shard / "sweep.csv").read_text() == before
    assert split.shard(1, 4, "--fresh").returncode == 0


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "1/", "/3", "a/b", "1/0", "-1/3", "1/10001", "1/3/4", " 1/3"])
def test_what_is_not_a_part(text, swept):
    result = swept.sweep(swept.folder / "none", "--shard", text)
    assert result.returncode == 2 and f"--shard is '{text}', not I/N with I from 1 to N and N up to" in result.stderr
    assert not (swept.folder / "none").exists()
