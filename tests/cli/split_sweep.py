"""A sweep of a few gemms in three shards, each a run folder, for the tests of `merge`."""

import shutil

import pytest

from tests.cli.program import rows, run, sweep, write_rows

SIZES = range(1, 6)


def sizes(folder):
    return [int(row["problem"].split(",")[0][2:]) for row in rows(folder)]


def set_gpu(folder, uuids):
    """As if the rows were of these GPUs, in their order."""
    write_rows(folder, [row | {"gpu_uuid": uuid} for row, uuid in zip(rows(folder), uuids)])


class Split:
    def __init__(self, folder):
        self.problems = folder / "problems"
        self.problems.mkdir()
        (self.problems / "gemm.csv").write_text("network,m,n,k,count\n" + "".join(f"many,{m},8,8,2\n" for m in SIZES))
        self.folder = folder

    def sweep(self, out, *more):
        return sweep(self.problems, out, *more)

    def shard(self, index, count=3, *more):
        return self.sweep(self.folder / f"shard{index}", "--shard", f"{index}/{count}", *more)

    def merge(self, *more, shards=(1, 2, 3)):
        return run("merge", *(self.folder / f"shard{index}" for index in shards), "--out", self.folder / "merged", *more)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    split = Split(tmp_path_factory.mktemp("split"))
    for index in (1, 2, 3):
        result = split.shard(index)
        assert result.returncode == 0, result.stderr
    return split


@pytest.fixture
def split(swept, tmp_path):
    """A copy of the shards, to be spoilt."""
    for folder in swept.folder.iterdir():
        shutil.copytree(folder, tmp_path / folder.name)
    copy = object.__new__(Split)
    copy.folder, copy.problems = tmp_path, tmp_path / "problems"
    return copy
