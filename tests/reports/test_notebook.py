"""docs/quickstart.ipynb: is committed without outputs, finds or clones the repository, and runs from top to bottom on the host's variants.

The last takes a build of the preset that NOISEFLOOR_NOTEBOOK_PRESET names and a machine without other work, as in .ci/run.
"""

import json
import os
import re

import pytest

from tests.support.machine import ROOT, executable, git

PRESET = os.environ.get("NOISEFLOOR_NOTEBOOK_PRESET")
BOOK = json.loads((ROOT / "docs" / "quickstart.ipynb").read_text())
CODE = {cell["id"]: "".join(cell["source"]) for cell in BOOK["cells"] if cell["cell_type"] == "code"}


def execute(cells, folder, monkeypatch):
    """In this Python, whatever kernels the user has. Returns {cell: its outputs as text}; an error in a cell is raised."""
    for module in ("nbclient", "nbformat", "ipykernel"):
        if not PRESET:
            pytest.importorskip(module)
    import nbclient
    from nbformat import v4

    for name in ("JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(folder.parent / "settings"))
    monkeypatch.delenv("JUPYTER_PATH", raising=False)
    book = v4.new_notebook(cells=[v4.new_code_cell(source) for source in cells.values()])
    nbclient.NotebookClient(book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()
    return {name: "".join(one.get("text", "") + str(one.get("data", "")) for one in cell.outputs) for name, cell in zip(cells, book.cells)}


def test_nothing_of_a_run_is_committed():
    assert len(CODE) > 5 and len(BOOK["cells"]) <= 16
    pytest.importorskip("nbformat").validate(BOOK)
    for cell in BOOK["cells"]:
        assert cell.get("outputs", []) == [] and cell.get("execution_count") is None and cell["metadata"] == {}, cell["id"]


def test_elsewhere_than_in_a_checkout_it_clones(tmp_path, monkeypatch):
    origin, folder = tmp_path / "origin", tmp_path / "elsewhere"
    folder.mkdir()
    executable(origin / "scripts" / "noisefloor", "")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "a"]):
        git(origin, *words)
    cloning = re.sub("(?m)^repository = .*", f"repository = {origin.as_uri()!r}", CODE["setup"])
    outputs = execute({"setup": cloning, "again": CODE["setup"], "where": "print(Path.cwd())"}, folder, monkeypatch)
    assert outputs["where"] == f"{folder / 'noisefloor'}\n", outputs


@pytest.mark.skipif(not PRESET, reason="NOISEFLOOR_NOTEBOOK_PRESET names no build to run it with")
def test_it_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("NOISEFLOOR_PRESET", PRESET)
    clone = tmp_path / "work" / "noisefloor"  # of links, so that runs/ is not this checkout's
    clone.mkdir(parents=True)
    for entry in ROOT.iterdir():
        if entry.name not in ("runs", ".git"):
            (clone / entry.name).symlink_to(entry)
    short = CODE["sweep"].replace("--budget 120", "--budget 10")
    assert short != CODE["sweep"]
    outputs = execute({**CODE, "sweep": short}, clone.parent, monkeypatch)
    for name, pattern in (("sweep", "gemm .* ok"), ("roofline", "<svg"), ("bench", "mine .* (ok|throttled)"), ("which", r"(?m)^mine +\S"), ("picture", "image/png"),
                          ("published", "ptx_sm90a.*<svg")):
        assert re.search(pattern, outputs[name]), (name, outputs[name])
