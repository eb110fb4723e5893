import pytest


@pytest.fixture
def one(tmp_path):
    """A folder of problem files, with one problem of gemm."""
    folder = tmp_path / "problems"
    folder.mkdir()
    (folder / "gemm.csv").write_text("network,m,n,k,count\nmini,8,16,24,3\n")
    return folder
