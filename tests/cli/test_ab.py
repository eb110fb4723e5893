"""`noisefloor ab`: on builds with scripted times, and on the program itself against itself."""

import csv
import json
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.program import PROGRAM, needs_program, run

pytestmark = needs_program
STUB = Path(__file__).with_name("stub_build.py")
FIRST, SECOND, OTHER = "m=8,n=16,k=24", "m=16,n=16,k=8", "m=4,n=8,k=8"


@pytest.fixture
def build(tmp_path):
    """A build with scripted times; a folder with bin/noisefloor."""
    def make(name, **script):
        program = tmp_path / name / "bin" / "noisefloor"
        program.parent.mkdir(parents=True)
        text = json.dumps({"us": 10.0, **script})
        program.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(STUB))} {shlex.quote(text)} \"$@\"\n")
        program.chmod(0o755)
        return tmp_path / name
    return make


@pytest.fixture
def ab(problems, tmp_path):
    def ab(old, new, *more):
        out = tmp_path / "ab.csv"
        result = run("ab", old, new, "--problems", problems, "--networks", "all", "--out", out, *more)
        lines = {}
        if out.exists():
            with open(out, newline="") as file:
                lines = {row["case"].removeprefix("gemm/").removesuffix("/bf16/host"): row for row in csv.DictReader(file)}
        return result, lines
    return ab


def test_equal_builds(build, ab, tmp_path):
    result, lines = ab(build("old"), build("new"), "--markdown", tmp_path / "ab.md")
    assert result.returncode == 0, result.stderr
    assert {row["verdict"] for row in lines.values()} == {"equal"} and set(lines) == {FIRST, SECOND, OTHER}
    assert "3 cases, resolving 1 %: 3 equal" in result.stdout
    assert (tmp_path / "ab.md").read_text().startswith("## noisefloor: c0ffee against c0ffee")


def test_slower_and_faster(build, ab):
    old, new = build("old"), build("new", us=10.1)
    result, lines = ab(old, new)
    assert result.returncode == 1
    assert {row["verdict"] for row in lines.values()} == {"slower"}
    assert "+1.00 %" in result.stdout
    result, lines = ab(new, old)
    assert result.returncode == 0
    assert {row["verdict"] for row in lines.values()} == {"faster"}
    result, lines = ab(old, new, "--resolve", "5")
    assert result.returncode == 0 and {row["verdict"] for row in lines.values()} == {"equal"}


def test_a_case_that_looks_slower_gets_more_passes(build, ab, tmp_path):
    """By 1 % in the mean, half of it this way or that from process to process; and one that is as unsteady around nothing."""
    unsteady = {FIRST: [10.05, 10.15], SECOND: [9.8, 10.2], OTHER: [10.06, 10.08]}
    result, lines = ab(build("old"), build("new", us_of=unsteady, starts=str(tmp_path / "starts")))
    assert result.returncode == 1 and "of 5 to 32" in result.stderr, result.stderr
    assert lines[FIRST]["verdict"] == "slower" and 16 < int(lines[FIRST]["passes"]) < 32
    assert lines[SECOND]["verdict"] == "unresolved" and lines[SECOND]["passes"] == "16"
    assert lines[OTHER]["verdict"] == "slower" and int(lines[OTHER]["passes"]) > 5, "by 0.7 %: within 1, but not equal"


def test_a_faster_phase_hides_no_slower_one(build, ab, tmp_path):
    result, lines = ab(build("old"), build("new", cold_us=9.5, us_of={FIRST: [10.05, 10.15]}, starts=str(tmp_path / "starts")), "--filter", "k=24")
    assert result.returncode == 1 and lines[FIRST]["verdict"] == "slower" and int(lines[FIRST]["passes"]) > 16, result.stderr
    result, lines = ab(build("a"), build("b", cold_us=9.5), "--filter", "k=24")
    assert result.returncode == 0 and lines[FIRST]["verdict"] == "faster"


def test_filter(build, ab):
    result, lines = ab(build("old"), build("new"), "--filter", "k=24")
    assert result.returncode == 0 and set(lines) == {FIRST}
    assert "no case matches" in ab(build("a"), build("b"), "--filter", "k=25")[0].stderr


def test_a_case_that_one_build_lacks(build, ab):
    lacks = {"fail": {FIRST: {"failed": "unsupported_problem", "reason": "this build has no variant 'host' of gemm"}}}
    result, lines = ab(build("old", **lacks), build("new"))
    assert result.returncode == 0
    assert lines[FIRST]["verdict"] == "missing" and "the old build: this build has no variant" in lines[FIRST]["reason"]
    assert lines[SECOND]["verdict"] == "equal"


@pytest.mark.parametrize("script, words", [
    ({"judge": {"wrong": "d[3] is nan", "errors": []}}, "the new build: d[3] is nan"),
    ({"fail": {FIRST: {"wrong": "d[0] is 1, not 2", "errors": []}}}, "the new build: d[0] is 1, not 2"),
    ({"fail": {FIRST: {"errors": [{"max": 1.0, "l2": 1.0}]}}}, "the new build: output 0: error 1, allowed"),
    ({"fail": {FIRST: {"failed": "cuda_error", "reason": "misaligned address", "lost": True}}}, "the new build: misaligned address"),
    ({"die": FIRST}, "ended with exit code 139: a fault of mine"),
])
def test_a_new_build_that_is_wrong_or_fails(build, ab, script, words):
    result, lines = ab(build("old"), build("new", **script))
    assert result.returncode == 1, result.stderr
    assert lines[FIRST]["verdict"] == "wrong" and words in lines[FIRST]["reason"]
    assert "judge" in script or lines[SECOND]["verdict"] == "equal"


def test_a_case_that_is_gone_from_the_new_build(build, ab):
    lacks = {"fail": {FIRST: {"failed": "unsupported_problem", "reason": "taken out"}}}
    result, lines = ab(build("old"), build("new", **lacks))
    assert result.returncode == 1
    assert lines[FIRST]["verdict"] == "gone" and "the new build: taken out" in lines[FIRST]["reason"]
    assert lines[SECOND]["verdict"] == "equal"
    result, lines = ab(build("a", **lacks), build("b", **lacks))
    assert result.returncode == 0 and lines[FIRST]["verdict"] == "missing", "neither build has it"


@pytest.mark.parametrize("us", [-1.0, 0.0, 1e308, 1e-308])
def test_times_that_cannot_be(build, ab, us):
    result, lines = ab(build("old"), build("new", us=us))
    assert result.returncode == 1 and {row["verdict"] for row in lines.values()} == {"wrong"}
    assert "gave a time of" in lines[FIRST]["reason"]


def test_a_new_build_that_is_killed_in_every_pass_is_gone(build, ab):
    """As by a system short of memory, of which it takes more than the old one."""
    result, lines = ab(build("old"), build("new", kill=FIRST))
    assert result.returncode == 1, result.stderr
    assert lines[FIRST]["verdict"] == "gone" and "in each of 16 passes the new build" in lines[FIRST]["reason"]
    assert "killed by signal 9" in lines[FIRST]["reason"] and lines[SECOND]["verdict"] == "equal"


def test_a_worker_that_is_killed_from_outside_leaves_its_case_unresolved(build, ab, tmp_path):
    not_always = build("not_always", kill=FIRST, starts=str(tmp_path / "starts"), spared_at=[4])  # in its second pass
    killed = {"old": build("old", kill=FIRST), "new": build("new", kill=FIRST), "once": not_always}
    for old, new in (("old", build("a")), ("old", "new"), (build("b"), "once")):
        result, lines = ab(killed.get(old, old), killed.get(new, new))
        assert result.returncode == 0, result.stderr
        assert lines[FIRST]["verdict"] == "unresolved" and "killed by signal 9" in lines[FIRST]["reason"], (old, new)
        assert lines[SECOND]["verdict"] == "equal"


def test_a_budget_leaves_a_case_unresolved_whose_new_build_was_killed_before(build, ab, tmp_path):
    slow = {"us": 10.2, "sleep": {OTHER: 1.0}}
    result, lines = ab(build("old", **slow), build("new", kill=FIRST, **slow), "--budget", "0.5")
    assert result.returncode == 2 and {row["verdict"] for row in lines.values()} == {"unresolved"}, result.stderr


def test_a_build_that_does_not_start_again_leaves_what_is_known(build, ab, tmp_path):
    result, lines = ab(build("old"), build("new", us=10.2, starts=str(tmp_path / "starts"), most_starts=4))
    assert result.returncode == 2 and {row["verdict"] for row in lines.values()} == {"unresolved"}
    assert "what the passes before say stands" in result.stderr


def test_a_budget_ends_it_and_every_case_has_a_row(build, ab):
    result, lines = ab(build("old"), build("new", us=10.2), "--budget", "1e-9")
    assert result.returncode == 2 and {row["verdict"] for row in lines.values()} == {"unresolved"} and set(lines) == {FIRST, SECOND, OTHER}
    assert "the budget was spent" in lines[FIRST]["reason"] and "what the passes before say stands" in result.stderr
    assert result.stderr.count("pass ") == 1, "no further pass is begun"
    result, lines = ab(build("a"), build("b", us=10.2), "--budget", "1e6")
    assert result.returncode == 1 and {row["verdict"] for row in lines.values()} == {"slower"}


def test_a_build_that_changes_on_the_way(build, ab, tmp_path):
    result, lines = ab(build("old"), build("new", starts=str(tmp_path / "starts"), changes_at=3))
    assert result.returncode == 2 and "another one than at the beginning" in lines[FIRST]["reason"]


def test_reasons_are_one_line(build, ab):
    noise = {"fail": {FIRST: {"failed": "cuda_error", "reason": "a\nb\x1b[31m" + "x" * 5000}}}
    result, lines = ab(build("old"), build("new", **noise))
    assert result.returncode == 1 and len(lines[FIRST]["reason"]) == 200
    assert "\x1b" not in result.stdout and "a b" in result.stdout


def test_an_old_build_that_is_wrong_says_nothing_of_the_new_one(build, ab):
    result, lines = ab(build("old", judge={"wrong": "d[3] is nan", "errors": []}), build("new"))
    assert result.returncode == 2
    assert {row["verdict"] for row in lines.values()} == {"missing"}


def test_waiting_threads_leave_a_case_unresolved(build, ab):
    waits = {"fail": {FIRST: {"failed": "throttled", "reason": "threads waited for a core"}}}
    result, lines = ab(build("old"), build("new", **waits))
    assert result.returncode == 0 and lines[FIRST]["verdict"] == "unresolved"
    nowhere = {"fail": {problem: waits["fail"][FIRST] for problem in (FIRST, SECOND, OTHER)}}
    assert ab(build("c"), build("d", **nowhere))[0].returncode == 2, "nothing could be compared"
    assert ab(build("a"), build("b", **waits), "--strict")[0].returncode == 1


def test_bad_builds(build, ab, tmp_path):
    good = build("good")
    result, _ = ab(good, tmp_path)
    assert result.returncode == 2 and "no noisefloor program, nor a folder with bin/noisefloor" in result.stderr
    old = tmp_path / "before_ab"
    old.write_text("#!/bin/sh\necho \"noisefloor: unknown command 'worker'\" >&2\nexit 2\n")
    old.chmod(0o755)
    result, _ = ab(old, good)
    assert result.returncode == 2 and "the old build" in result.stderr and "unknown command 'worker'" in result.stderr
    result, _ = ab(good, build("elsewhere", facts={"device": "another host"}))
    assert result.returncode == 2 and "different devices: a host and another host" in result.stderr
    assert "'[' is not a regular expression" in ab(good, good, "--filter", "[")[0].stderr
    for wrong in ("0", "60", "x", "nan"):
        assert ab(good, good, "--resolve", wrong)[0].returncode == 2
    for wrong in ("0", "-1", "x", "nan", "inf"):
        result, _ = ab(good, good, "--budget", wrong)
        assert result.returncode == 2 and "--budget" in result.stderr


def test_this_program_against_itself(ab):
    """How far apart equal builds are is the machine's business; that every case gets a verdict is ours."""
    result, lines = ab(PROGRAM, PROGRAM, "--device", "host", "--filter", FIRST)
    assert result.returncode in (0, 1), result.stderr
    row = lines[FIRST]
    assert 5 <= int(row["passes"]) <= 16 or row["verdict"] == "unresolved"
    assert row["verdict"] in ("equal", "unresolved", "slower", "faster")
    assert not row["warm"] or float(row["warm_low"]) <= float(row["warm"]) <= float(row["warm_high"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_it_started_ends_with_it(build, problems, tmp_path, number):
    """A build that starts another program, as a wrapper script does, and answers nothing."""
    folder, pid = build("old"), tmp_path / "pid"
    (folder / "bin/noisefloor").write_text(f"""#!/bin/sh
sleep 1000 & echo $! >{shlex.quote(f"{pid}.part")}
mv {shlex.quote(f"{pid}.part")} {shlex.quote(str(pid))}
sleep 1000
""")
    command = [PROGRAM, "ab", folder, build("new"), "--problems", problems, "--networks", "all"]
    ab = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def state():
        try:
            return Path(f"/proc/{int(pid.read_text())}/stat").read_text().rpartition(") ")[2][0]
        except (FileNotFoundError, ProcessLookupError):
            return "gone"

    while not pid.exists():
        assert ab.poll() is None
        time.sleep(0.01)
    ab.send_signal(number)
    assert ab.wait() == -number
    deadline = time.monotonic() + 120
    while state() not in ("gone", "Z"):
        assert time.monotonic() < deadline, "what a build started is still there"
        time.sleep(0.01)
