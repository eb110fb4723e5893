"""The example workflows are YAML of the form that GitHub Actions reads, and call what exists with flags that exist."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "scripts" / "ci-examples").glob("*.yml"))
PROGRAM = os.environ.get("NOISEFLOOR_BINARY", "")


def commands(path):
    workflow = yaml.safe_load(path.read_text())
    return [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]


def test_there_are_two_with_and_one_without_a_gpu():
    assert [path.name for path in EXAMPLES] == ["github-ab.yml", "github-gpu.yml", "github-no-gpu.yml"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_is_a_workflow(path):
    workflow = yaml.safe_load(path.read_text())
    assert workflow["name"] and True in workflow, "YAML 1.1 reads the key `on` as true"
    for job in workflow["jobs"].values():
        assert job["runs-on"] and job["timeout-minutes"]
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)
            assert subprocess.run(["bash", "-n", "-c", step.get("run", ":")]).returncode == 0


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_calls_what_there_is(path):
    text = "\n".join(commands(path))
    for script in re.findall(r"scripts/[a-z-]+", text):
        assert (ROOT / script).is_file(), script
    if not Path(PROGRAM).is_file():
        pytest.skip("NOISEFLOOR_BINARY names no program")
    calls = {"gate": re.findall(r"noisefloor gate (.*)", text), "ab": re.findall(r"scripts/ab (.*)", text)}
    assert any(calls.values())
    for command, found in calls.items():
        help_text = subprocess.run([PROGRAM, command, "--help"], capture_output=True, text=True).stdout
        for flag in re.findall(r"--[a-z-]+", " ".join(found)):
            assert flag in help_text, flag
