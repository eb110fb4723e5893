import pytest

from tests.cli.program import SMALL


@pytest.fixture
def problems(tmp_path):
    """A folder of problem files, with a few small problems of gemm."""
    folder = tmp_path / "problems"
    folder.mkdir()
    (folder / "gemm.csv").write_text(SMALL)
    return folder
