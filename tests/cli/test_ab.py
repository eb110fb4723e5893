"""`noisefloor ab`: on builds with scripted times, and on the program itself against itself."""

import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.program import PROGRAM, needs_program, read_table, run, stub_build

pytestmark = needs_program
FIRST, SECOND, OTHER = "m=8,n=16,k=24", "m=16,n=16,k=8", "m=4,n=8,k=8"


@pytest.fixture
def build(tmp_path):
    return lambda name, **script: stub_build(tmp_path / name, **script)


@pytest.fixture
def ab(problems, tmp_path):
    def ab(old, new, *more):
        out = tmp_path / "ab.csv"
        result = run("ab", old, new, "--problems", problems, "--networks", "all", "--out", out, *more)
        return result, {row["case"].removeprefix("gemm/").removesuffix("/bf16/host"): row for row in (read_table(out) if out.exists() else [])}
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
    assert result.returncode == 0 and lines[FIRST]["verdict"] == "faster" and set(lines) == {FIRST}
    assert "no case matches" in ab(build("a"), build("b"), "--filter", "k=25")[0].stderr


LACKS = {"fail": {FIRST: {"failed": "unsupported_problem", "reason": "this build has no variant 'host' of gemm"}}}
WAITS = {"failed": "throttled", "reason": "threads waited for a core"}
NAN = {"judge": {"wrong": "d[3] is nan", "errors": []}}


# What is odd of the old build, and of the new one; the verdict on FIRST, and words of its reason, and the exit code.
@pytest.mark.parametrize("old, new, verdict, words, code", [
    (LACKS, {}, "missing", "the old build: this build has no variant", 0),
    ({}, LACKS, "gone", "the new build: this build has no variant", 1),
    (LACKS, LACKS, "neither", "", 0),
    ({}, NAN, "wrong", "the new build: d[3] is nan", 1),
    (NAN, {}, "missing", "the old build: d[3] is nan", 2),  # which says nothing of the new one
    ({}, {"fail": {FIRST: {"wrong": "d[0] is 1, not 2", "errors": []}}}, "wrong", "the new build: d[0] is 1, not 2", 1),
    ({}, {"fail": {FIRST: {"errors": [{"max": 1.0, "l2": 1.0}]}}}, "wrong", "the new build: output 0: error 1, allowed", 1),
    ({}, {"fail": {FIRST: {"failed": "cuda_error", "reason": "misaligned address", "lost": True}}}, "wrong", "the new build: misaligned address", 1),
    ({}, {"die": FIRST}, "wrong", "ended with exit code 139: a fault of mine", 1),
    ({}, {"kill": FIRST}, "gone", "in each of 16 passes the new build", 1),  # as by a system short of memory, of which it takes more
    ({"kill": FIRST}, {}, "unresolved", "killed by signal 9", 0),
    ({"kill": FIRST}, {"kill": FIRST}, "unresolved", "killed by signal 9", 0),
    ({}, {"fail": {FIRST: WAITS}}, "unresolved", "waited for a core", 0),  # --strict: 1
    ({}, {"fail": dict.fromkeys((FIRST, SECOND, OTHER), WAITS)}, "unresolved", "waited for a core", 2),  # nothing could be compared
])
def test_what_fails_is_told_from_what_is_slow(build, ab, old, new, verdict, words, code):
    builds = build("old", **old), build("new", **new)
    result, lines = ab(*builds)
    assert result.returncode == code, result.stderr
    if code == 0 and verdict == "unresolved":
        assert ab(*builds, "--strict")[0].returncode == 1
    assert lines[FIRST]["verdict"] == verdict and words in lines[FIRST]["reason"]
    assert (f"gemm/{FIRST}/" in result.stdout) == (verdict != "neither"), "what no build runs is no news"
    assert lines[SECOND]["verdict"] == ("equal" if code != 2 and "judge" not in new else verdict)


@pytest.mark.parametrize("us", [-1.0, 0.0, 1e308, 1e-308])
def test_times_that_cannot_be(build, ab, us):
    result, lines = ab(build("old"), build("new", us=us))
    assert result.returncode == 1 and {row["verdict"] for row in lines.values()} == {"wrong"}
    assert "gave a time of" in lines[FIRST]["reason"]


def test_a_new_build_that_is_not_always_killed_is_not_gone(build, ab, tmp_path):
    result, lines = ab(build("old"), build("new", kill=FIRST, starts=str(tmp_path / "starts"), spared_at=[4]))  # in its second pass
    assert result.returncode == 0 and lines[FIRST]["verdict"] == "unresolved" and lines[SECOND]["verdict"] == "equal", result.stderr


# What ends the passes early: what is known then is no verdict.
@pytest.mark.parametrize("new, more, reason, words", [
    ({"kill": FIRST, "us": 10.2, "sleep": {OTHER: 1.0}}, ["--budget", "0.5"], "", "the budget was spent"),
    ({"us": 10.2, "most_starts": 4}, [], "", "what the passes before say stands"),
    ({"changes_at": 3}, [], "another one than at the beginning", "what the passes before say stands"),
])
def test_cases_of_too_few_passes_are_unresolved(build, ab, tmp_path, new, more, reason, words):
    result, lines = ab(build("old"), build("new", starts=str(tmp_path / "starts"), **new), *more)
    assert result.returncode == 2 and {row["verdict"] for row in lines.values()} == {"unresolved"}, result.stderr
    assert reason in lines[FIRST]["reason"] and words in result.stderr


def test_a_budget_ends_it_and_every_case_has_a_row(build, ab):
    result, lines = ab(build("old"), build("new", us=10.2), "--budget", "1e-9")
    assert result.returncode == 2 and {row["verdict"] for row in lines.values()} == {"unresolved"} and set(lines) == {FIRST, SECOND, OTHER}
    assert "the budget was spent" in lines[FIRST]["reason"] and "what the passes before say stands" in result.stderr
    assert result.stderr.count("pass ") == 1, "no further pass is begun"
    result, lines = ab(build("a"), build("b", us=10.2), "--budget", "1e6")
    assert result.returncode == 1 and {row["verdict"] for row in lines.values()} == {"slower"}


def test_reasons_are_one_line(build, ab):
    noise = {"fail": {FIRST: {"failed": "cuda_error", "reason": "a\nb\x1b[31m" + "x" * 5000}}}
    result, lines = ab(build("old"), build("new", **noise))
    assert result.returncode == 1 and len(lines[FIRST]["reason"]) == 200
    assert "\x1b" not in result.stdout and "a b" in result.stdout


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
    assert result.returncode == 0 and lines[FIRST]["verdict"] == "same_code" and not lines[FIRST]["warm"], result.stderr
    result, lines = ab(PROGRAM, PROGRAM, "--device", "host", "--filter", FIRST, "--all")
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
