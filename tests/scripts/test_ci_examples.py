"""The example workflows are YAML of the form that GitHub Actions reads, and call what exists with flags that exist. The composite action's steps run."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.cli.program import PROGRAM, run

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "scripts" / "ci-examples").glob("*.yml"))
RECORDED = ROOT / "reports" / "recorded" / "nvidia-h100-80gb-hbm3"
ACTION = ROOT / "scripts" / "ci-examples" / "gate" / "action.yml"


def commands(path):
    """What the steps run; a step that uses an action of this tree runs that one's."""
    workflow = yaml.safe_load(path.read_text())
    jobs = workflow["jobs"].values() if "jobs" in workflow else [workflow["runs"]]
    steps = [step for job in jobs for step in job["steps"]]
    own = [command for step in steps if step.get("uses", "").startswith("./") for command in commands(ROOT / step["uses"] / "action.yml")]
    return own + [step["run"].replace("\\\n", " ") for step in steps if "run" in step]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_is_a_workflow_that_calls_what_there_is(path):
    workflow = yaml.safe_load(path.read_text())
    assert workflow["name"] and True in workflow, "YAML 1.1 reads the key `on` as true"
    for job in workflow["jobs"].values():
        assert job["runs-on"] and job["timeout-minutes"]
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)
            assert subprocess.run(["bash", "-n", "-c", step.get("run", ":")]).returncode == 0
    text = "\n".join(commands(path))
    for script in re.findall(r"scripts/[a-z-]+", text):
        assert (ROOT / script).is_file(), script
    if not Path(PROGRAM).is_file():
        pytest.skip("NOISEFLOOR_BINARY names no program")
    calls = {command: re.findall(rf"noisefloor\"? {command} (.*)", text) for command in ("gate", "resources")} | {"ab": re.findall(r"scripts/ab (.*)", text)}
    assert any(calls.values())
    for command, found in calls.items():
        help_text = run(command, "--help").stdout
        for flag in re.findall(r"--[a-z-]+", " ".join(found)):
            assert flag in help_text, flag


class Runner:
    """As much of GitHub's runner as the action takes: expressions that are names, bash with its flags, files for outputs and summary."""

    def __init__(self, folder):
        self.folder, self.steps, self.summary = folder, {}, folder / "summary.md"
        self.action = yaml.safe_load(ACTION.read_text())

    def filled(self, text, inputs):
        names = {f"inputs.{name}": value for name, value in inputs.items()} | {"github.action_path": str(ACTION.parent)}
        names |= {f"steps.{step}.outputs.{name}": value for step, outputs in self.steps.items() for name, value in outputs.items()}
        return re.sub(r"\$\{\{ ([\w.-]+) \}\}", lambda found: names.get(found[1], ""), str(text))

    def run(self, **given):
        known = self.action["inputs"]
        given = {name.replace("_", "-"): str(value) for name, value in given.items()}
        assert set(given) <= set(known) and all(name in given for name, about in known.items() if about.get("required"))
        inputs = {name: given.get(name, about.get("default", "")) for name, about in known.items()}
        self.steps, code, said = {}, 0, ""
        self.summary.write_text("")
        for number, step in enumerate(self.action["runs"]["steps"]):
            if code:
                break
            script, output = self.folder / f"step{number}.sh", self.folder / f"output{number}"
            script.write_text(self.filled(step["run"], inputs))
            output.write_text("")
            env = os.environ | {name: self.filled(value, inputs) for name, value in step["env"].items()}
            env |= {"GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(self.summary)}
            result = subprocess.run(["bash", "--noprofile", "--norc", "-eo", "pipefail", script], env=env, cwd=self.folder, capture_output=True, text=True)
            code, said = result.returncode, said + result.stdout + result.stderr
            self.steps[step["id"]] = dict(line.split("=", 1) for line in output.read_text().splitlines())
        outputs = {name: self.filled(about["value"], inputs) for name, about in self.action["outputs"].items()}
        return code, outputs, said


@pytest.fixture
def runner(tmp_path):
    if not Path(PROGRAM).is_file():
        pytest.skip("NOISEFLOOR_BINARY names no program")
    return Runner(tmp_path)


def test_the_action_is_one():
    """As far as GitHub reads it and the runner above does not."""
    action = yaml.safe_load(ACTION.read_text())
    assert action["name"] and action["description"] and action["runs"]["using"] == "composite"
    assert all(step["shell"] == "bash" for step in action["runs"]["steps"])
    assert set(re.findall(r"\$\{\{ inputs\.([\w-]+) \}\}", ACTION.read_text())) == set(action["inputs"]), "every input is used, and no other"
    assert all(isinstance(about.get("default", ""), str) and about["description"] for about in action["inputs"].values())
    assert not any("${{" in step["run"] for step in action["runs"]["steps"]), "what a caller gives is data, not shell"


def test_the_action_judges_a_run(runner):
    code, outputs, said = runner.run(baseline=RECORDED, candidate=RECORDED, program=PROGRAM, out="my files", gate_arguments="--new-rows\n--filter ^gemm/\n")
    assert code == 0, said
    assert outputs == {"exit-code": "0", "candidate": str(RECORDED)}
    made = runner.folder / "my files"
    assert {path.name for path in made.iterdir()} == {"gate.md", "gate.xml", "bencher.json", "benchmark-action.json"}
    assert runner.summary.read_text() == (made / "gate.md").read_text() and "0 regressed" in runner.summary.read_text()
    assert all(name.startswith("gemm/") for name in json.loads((made / "bencher.json").read_text()))

    # Without a baseline: not compared, and nothing that an earlier job left is taken for this one's.
    code, outputs, said = runner.run(baseline="none", candidate=RECORDED, program=PROGRAM, out="my files")
    assert code == 2 and outputs["exit-code"] == "2" and "none" in said
    assert not list(made.iterdir()) and runner.summary.read_text() == ""


def test_the_action_makes_a_run_the_first_baseline(runner):
    """Of a run without load: none is swept, which other programs could disturb."""
    for record, expected in (("false", 2), ("true", 0)):
        code, outputs, said = runner.run(baseline="$(touch hacked)", candidate=RECORDED, program=PROGRAM, record=record)
        assert code == expected and outputs["exit-code"] == str(expected), said
        assert (runner.folder / "$(touch hacked)").exists() == (record == "true")
    recorded = {path.name for path in (runner.folder / "$(touch hacked)").iterdir()}
    assert {"sweep.csv", "samples.jsonl.gz", "env.json"} <= recorded
    before = (runner.folder / "$(touch hacked)" / "env.json").stat().st_mtime_ns
    assert runner.run(baseline="$(touch hacked)", candidate=RECORDED, program=PROGRAM, record="true")[0] == 0
    assert (runner.folder / "$(touch hacked)" / "env.json").stat().st_mtime_ns == before, "recorded once"
    assert not (runner.folder / "hacked").exists()


@pytest.mark.parametrize("code", [1, 2])
def test_the_action_lets_the_gate_judge_a_wrong_row(runner, code):
    program = runner.folder / "program"
    program.write_text(f'#!/bin/sh\n[ "$1" != sweep ] || {{ cp -r "{RECORDED}" "$4"; exit {code}; }}\nexec "{PROGRAM}" "$@"\n')
    program.chmod(0o755)
    old = runner.folder / "noisefloor-gate" / "gate.md"
    old.parent.mkdir()
    old.write_text("of an earlier job\n")
    ended, outputs, said = runner.run(baseline=RECORDED, program=program)
    assert (ended, outputs["exit-code"]) == ((0, "0") if code == 1 else (2, "")), said
    assert old.exists() == (code == 1) and (code == 2 or "earlier" not in old.read_text())


def test_the_action_sweeps(runner):
    problems = runner.folder / "problems"
    problems.mkdir()
    (problems / "gemm.csv").write_text("network,m,n,k,count\nmini,8,16,24,1\n")
    arguments = {"baseline": "$(touch hacked)", "program": PROGRAM, "sweep_arguments": "--device host --problems problems --networks all --ops gemm --dtypes fp32"}
    code, outputs, said = runner.run(**arguments)
    assert code == 2 and outputs == {"exit-code": "2", "candidate": "noisefloor-gate/run"}, said
    assert not (runner.folder / "hacked").exists()
    shutil.rmtree(runner.folder / "noisefloor-gate")
    code, outputs, said = runner.run(**{**arguments, "sweep_arguments": "--no-such-option"})
    assert code == 2 and outputs["exit-code"] == "" and "--no-such-option" in said
