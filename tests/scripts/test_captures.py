"""scripts/ncu and scripts/nsys, driven with stand-ins for the profilers and for noisefloor."""

import pytest

from tests.support.machine import ROOT, Machine

CASE = "gemm/m=8,n=8,k=8,act=silu/bf16/ptx_sm90a"
NAME = CASE.replace("/", "__")

# Stands for both profilers: writes down how it was called, then does what the test asks through an environment variable.
TOOL = """#!/usr/bin/env bash
printf '%s\\n' "$@" '--- call' >>"$CALLS"
[ "$1" != --import ] || { echo '"ID","rows"'; exit 0; }
while [ $# -gt 0 ]; do case "$1" in --export | --output) report=$2 ;; esac; shift; done
[ -z "${SAYS:-}" ] || printf '%b\\n' "$SAYS"
case "$report" in *"${FAILS:-none}"*) exit 4 ;; esac
echo report >"$report.${EXTENSION:-$(basename "$0")-rep}"
exit "${CODE:-0}"
"""


class Captures(Machine):
    def __init__(self, folder):
        super().__init__(folder)
        self.out, self.calls = folder / "out", folder / "calls"
        self.calls.write_text("")
        for name, text in (("noisefloor", ""), ("ncu", TOOL), ("nsys", TOOL)):
            self.program(name, text)
        self.environment |= {"CALLS": str(self.calls), "NOISEFLOOR_BINARY": str(self.tools / "noisefloor")}

    def __call__(self, tool, *arguments, **environment):
        return self.run(ROOT / "scripts" / tool, "--out", self.out, *arguments, **environment)

    def called(self):
        """The arguments of each call of the tool, as one text."""
        return [" ".join(call.splitlines()) for call in self.calls.read_text().split("--- call\n") if call]

    def files(self):
        return sorted(path.name for path in self.out.iterdir()) if self.out.exists() else []


@pytest.fixture
def captures(tmp_path):
    return Captures(tmp_path)


def test_ncu_captures_the_timed_launch_alone(captures):
    result = captures("ncu", CASE, "--device", "1")
    assert result.returncode == 0, result.stderr
    capture, page = captures.called()
    for words in ("--nvtx-include regex:.*ptx_sm90a/", "--clock-control none", "--set full", "dram__bytes_read.sum"):
        assert words in capture
    assert capture.endswith(f"{captures.tools / 'noisefloor'} run {CASE} --profile --device 1")
    assert page.startswith("--import") and "--csv --page raw" in page
    assert captures.files() == [f"{NAME}.csv", f"{NAME}.ncu-rep"]
    assert (captures.out / f"{NAME}.csv").read_text() == '"ID","rows"\n'
    assert captures("ncu", CASE, "--", "--set", "basic").returncode == 0
    assert "--set basic" in captures.called()[2] and "--set full" not in captures.called()[2]


def test_nsys_captures_the_range(captures):
    assert captures("nsys", CASE).returncode == 0
    [capture] = captures.called()
    assert capture.startswith("profile -t cuda,nvtx") and f"--capture-range nvtx --nvtx-capture {CASE}@*" in capture
    assert captures.files() == [f"{NAME}.nsys-rep"]


def test_one_that_fails_does_not_end_the_others(captures):
    result = captures("nsys", CASE.replace("ptx_sm90a", "tiled"), CASE, FAILS="tiled", SAYS="out of luck")
    assert result.returncode == 2 and "exit code 4" in result.stderr and "out of luck" in result.stderr
    assert captures.files() == [f"{NAME}.nsys-rep"]


def test_what_is_there_of_a_capture_that_failed_is_kept(captures):
    result = captures("ncu", CASE, CODE="1", SAYS=f"{CASE}: incorrect: d[3] is 4")
    assert result.returncode == 2 and "incorrect: d[3] is 4" in result.stderr and f"{NAME}.ncu-rep" in captures.files()
    assert captures("nsys", CASE, EXTENSION="qdstrm").returncode == 2
    assert f"{NAME}.qdstrm" in captures.files()


def test_forbidden_counters_say_how_to_be_allowed(captures):
    result = captures("ncu", CASE, FAILS=NAME, SAYS="==ERROR== ERR_NVGPUCTRPERM")
    assert result.returncode == 2 and "NVreg_RestrictProfilingToAdminUsers=0" in result.stderr and not captures.files()


def test_a_run_folder_gets_its_captures_by_names_that_a_file_system_takes(captures, tmp_path):
    (tmp_path / "sweep.csv").write_text("rows\n")
    for last in "12":
        assert captures("nsys", f"sampler_step/{'elements=1,' * 30}seed={last}/bf16/tiled", "--run", tmp_path).returncode == 0
    names = [path.name for path in (tmp_path / "captures").iterdir()]
    assert len(names) == 2 and max(map(len, names)) < 200


@pytest.mark.parametrize("arguments, says", [
    ([], "give a case"), (["--filter", "gemm"], "--benchmark_filter=RE"), (["--most=3", CASE], "--most was removed"),
    (["gemm"], "'gemm' is no option and no case"), ([CASE, "--set", "full"], "behind --"), ([CASE, "--device"], "--device needs a value"),
    ([CASE, "--out", "/proc/nowhere"], "/proc/nowhere"), ([CASE, "--run", "/nowhere"], "is not a run folder"),
])
def test_wrong_arguments_are_named(captures, arguments, says):
    result = captures("ncu", *arguments)
    assert result.returncode == 2 and says in result.stderr, result
    assert captures.called() == []


def test_a_tool_that_cannot_be_run_is_named(captures):
    result = captures("ncu", CASE, NOISEFLOOR_NCU="/nowhere/tool")
    assert result.returncode == 2 and "NOISEFLOOR_NCU=/nowhere/tool" in result.stderr
