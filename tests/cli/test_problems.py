"""The problems of one call of a network."""

import collections
import csv
import re

import pytest

from tests.cli.program import needs_program, run
from tests.python import captured

pytestmark = needs_program


def test_problems_are_those_of_the_size():
    def problems(*arguments):
        result = run("problems", *arguments)
        assert result.returncode == 0, result.stderr
        return list(csv.DictReader(result.stdout.splitlines()))

    assert problems("adm64") == problems("adm64", "--size", "height=64,width=64")
    ragged = problems("adm64", "--size", "height=24,width=40", "--batch", 2)
    assert len(problems("adm64", "--batch", 2)) == len(ragged)
    sides = {re.search(r"h=(\d+),w=(\d+)", row["problem"]).groups() for row in ragged if row["op"] == "conv2d"}
    assert sides == {("24", "40"), ("12", "20"), ("6", "10"), ("3", "5")}
    text = problems("sd15", "--size", "tokens=154,height=32,width=40")
    assert {re.search(r"seq_kv=(\d+)", row["problem"])[1] for row in text if row["op"] == "attention"} == {"154", "1280", "320", "80", "20"}
    result = run("problems", "adm64", "--size", "height=60")
    assert result.returncode == 2 and "height 60: adm64 takes multiples of 8; the nearest are 56 and 64" in result.stderr and result.stdout == "", result


def counts(network):
    result = run("problems", network, "--batch", 2, "--dtype", "fp32", "--unfused")
    assert result.returncode == 0, result.stderr
    return collections.Counter({(row["op"], row["problem"]): int(row["count"]) for row in csv.DictReader(result.stdout.splitlines())})


@pytest.mark.parametrize("network", captured.NETWORKS)
def test_unfused_is_what_capture_finds_in_diffusers(network):
    assert counts(network) == captured.table_of(network)
