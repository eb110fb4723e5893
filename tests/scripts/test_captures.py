"""scripts/ncu and scripts/nsys, driven with stand-ins for the profilers and for noisefloor."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
CASE = "gemm/m=8,n=8,k=8,act=silu/bf16/ptx_sm90a"
NAME = CASE.replace("/", "__")

# Stand for the profilers: write down how they were called, then do what the test asks through an environment variable.
NCU = """#!/usr/bin/env bash
printf '%s\\n' "$@" '--- call' >>"$CALLS"
[ "$1" != --import ] || { [ -z "${NCU_NO_CSV:-}" ] || exit 3; echo '"ID","rows"'; exit 0; }
while [ $# -gt 0 ]; do [ "$1" != --export ] || export=$2; shift; done
[ -z "${NCU_SAYS:-}" ] || printf '%b\\n' "$NCU_SAYS"
[ -n "${NCU_NO_REPORT:-}" ] || echo report >"$export.ncu-rep"
exit "${NCU_CODE:-0}"
"""
NSYS = """#!/usr/bin/env bash
printf '%s\\n' "$@" '--- call' >>"$CALLS"
while [ $# -gt 0 ]; do [ "$1" != --output ] || output=$2; shift; done
[ -z "${NSYS_SAYS:-}" ] || printf '%b\\n' "$NSYS_SAYS"
[ -z "${NSYS_EXT-nsys-rep}" ] || echo report >"$output.${NSYS_EXT-nsys-rep}"
exit "${NSYS_CODE:-0}"
"""
PROGRAM = """#!/usr/bin/env bash
[ "$1" != sweep ] || { printf '%s\\n' "$@" >>"$CALLS.program"; [ -n "${LISTED:-}" ] || { echo "no case matches" >&2; exit 2; }; printf '%b\\n' "$LISTED"; exit 0; }
"""


class Captures:
    def __init__(self, folder):
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.calls = folder / "calls"
        self.calls.write_text("")
        self.program = self.write("noisefloor", PROGRAM)
        self.write("ncu", NCU)
        self.write("nsys", NSYS)
        self.captures = folder / "runs" / "captures"

    def write(self, name, text):
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def __call__(self, tool, *arguments, **environment):
        text = (f'set -euo pipefail; . "{SCRIPTS}/lib.sh"; . "{SCRIPTS}/capture.sh"; script=$1; program=$2; runs=$3; shift 3; '
                'capture_arguments "$script" "$@"; capture "$program" "$runs"')
        environment = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", "CALLS": str(self.calls), **environment}
        return subprocess.run(["bash", "-c", text, tool, tool, str(self.program), str(self.folder / "runs"), *map(str, arguments)],
                              capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, env=environment)

    def called(self):
        """The arguments of each call of the tool."""
        return [call.splitlines() for call in self.calls.read_text().split("--- call\n") if call]

    def files(self):
        return sorted(path.name for path in self.captures.iterdir()) if self.captures.exists() else []


@pytest.fixture
def captures(tmp_path):
    return Captures(tmp_path)


def has(arguments, *expected):
    """Whether `expected` stands in `arguments`, side by side."""
    return any(tuple(arguments[i : i + len(expected)]) == expected for i in range(len(arguments)))


@pytest.mark.parametrize("words", [[CASE], ["gemm", "m=8,n=8,k=8,act=silu", "ptx_sm90a"]])
def test_ncu_captures_the_timed_launch_alone(captures, words):
    result = captures("ncu", *words)
    assert result.returncode == 0, result.stderr
    capture, page = captures.called()
    assert has(capture, "--nvtx", "--nvtx-include", "regex:.*ptx_sm90a/")
    assert has(capture, "--clock-control", "none") and has(capture, "--set", "full")
    metrics = capture[capture.index("--metrics") + 1].split(",")
    assert "dram__bytes_read.sum" in metrics and "gpc__cycles_elapsed.avg.per_second" in metrics
    assert capture[-4:] == [str(captures.program), "run", CASE, "--profile"]
    assert page[0] == "--import" and has(page, "--csv", "--page", "raw")
    assert captures.files() == [f"{NAME}.csv", f"{NAME}.ncu-rep"]
    assert (captures.captures / f"{NAME}.csv").read_text() == '"ID","rows"\n'


def test_flags_for_the_tool_and_the_program(captures, tmp_path):
    result = captures("ncu", CASE, "--device", "1", "--out", tmp_path / "here", "--", "--set", "basic", "--verbose")
    assert result.returncode == 0, result.stderr
    capture = captures.called()[0]
    assert has(capture, "--set", "basic", "--verbose", str(captures.program)) and not has(capture, "--set", "full")
    assert capture[-2:] == ["--device", "1"]
    assert (tmp_path / "here" / f"{NAME}.ncu-rep").exists() and not captures.captures.exists()


def test_nsys_captures_the_range(captures):
    result = captures("nsys", CASE)
    assert result.returncode == 0, result.stderr
    [capture] = captures.called()
    assert capture[0] == "profile" and has(capture, "-t", "cuda,nvtx")
    assert has(capture, "--capture-range", "nvtx", "--nvtx-capture", f"{CASE}@*")
    assert has(capture, "--env-var", "NSYS_NVTX_PROFILER_REGISTER_ONLY=0")
    assert captures.files() == [f"{NAME}.nsys-rep"]


def test_a_run_folder_gets_its_captures(captures, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    refused = captures("nsys", CASE, "--run", run)
    assert refused.returncode == 2 and "is not a run folder" in refused.stderr
    (run / "sweep.csv").write_text("rows\n")
    assert captures("nsys", CASE, "--run", run).returncode == 0
    assert (run / "captures" / f"{NAME}.nsys-rep").exists()


def test_a_filter_takes_all_cases_that_match(captures):
    cases = [CASE, CASE.replace("ptx_sm90a", "tiled")]
    result = captures("ncu", "--filter", "act=silu", LISTED="\\n".join(cases))
    assert result.returncode == 0, result.stderr
    assert "--benchmark_filter=act=silu" in (captures.folder / "calls.program").read_text().splitlines()
    assert [call[-2] for call in captures.called() if call[0] == "--nvtx"] == cases
    assert len(captures.files()) == 4

    many = captures("ncu", "--filter", "act=silu", "--most", "1", LISTED="\\n".join(cases))
    assert many.returncode == 2 and "matches 2 cases, more than 1" in many.stderr
    none = captures("ncu", "--filter", "act=silu")
    assert none.returncode == 2 and "no cases for --filter" in none.stderr


def test_long_cases_get_names_that_a_file_system_takes(captures):
    names = []
    for last in "12":
        case = f"sampler_step/batch=1,{'elements=1,' * 30}seed={last}/bf16/tiled"
        assert captures("nsys", case).returncode == 0
        [name] = set(captures.files()) - set(names)
        assert len(name) < 200
        names.append(name)


@pytest.mark.parametrize("tool", ["ncu", "nsys"])
def test_a_missing_tool_says_where_it_was_looked_for(captures, tool):
    (captures.bin / tool).unlink()
    result = captures(tool, CASE, PATH=f"{captures.bin}:/usr/bin:/bin", CUDA_HOME="")
    if result.returncode == 0 or "wrote no report" in result.stderr:
        pytest.skip(f"a real {tool} is installed here")
    assert result.returncode == 2
    assert f"there is no {tool} on PATH" in result.stderr and f"NOISEFLOOR_{tool.upper()}" in result.stderr
    wrong = captures(tool, CASE, **{f"NOISEFLOOR_{tool.upper()}": "/nowhere/tool"})
    assert wrong.returncode == 2 and "'/nowhere/tool', which cannot be executed" in wrong.stderr


@pytest.mark.parametrize("tool", ["ncu", "nsys"])
def test_forbidden_counters_say_how_to_be_allowed(captures, tool):
    says = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"
    result = captures(tool, CASE, NCU_SAYS=says, NCU_NO_REPORT="1", NCU_CODE="1", NSYS_SAYS=says, NSYS_EXT="", NSYS_CODE="1")
    assert result.returncode == 2
    assert "NVreg_RestrictProfilingToAdminUsers=0" in result.stderr
    assert captures.files() == []


def test_ncu_without_a_report_passes_on_the_reason(captures):
    result = captures("ncu", CASE, NCU_NO_REPORT="1", NCU_SAYS="ptx_sm90a: not_built: needs sm_90a\\n==WARNING== No kernels were profiled.")
    assert result.returncode == 2
    assert "ncu wrote no report" in result.stderr and "not_built: needs sm_90a" in result.stderr
    assert captures.files() == []
    unread = captures("ncu", CASE, NCU_NO_CSV="1")
    assert unread.returncode == 2 and "could not read its own report" in unread.stderr


def test_an_incorrect_case_is_captured_and_said(captures):
    result = captures("ncu", CASE, NCU_CODE="1", NCU_SAYS=f"{CASE}: incorrect: d[3] is 4")
    assert result.returncode == 2
    assert "incorrect: d[3] is 4" in result.stderr and f"{NAME}.ncu-rep" in captures.files()


def test_nsys_without_a_report(captures):
    kept = captures("nsys", CASE, NSYS_EXT="qdstrm")
    assert kept.returncode == 2
    assert "made no report" in kept.stderr and "QdstrmImporter" in kept.stderr
    assert captures.files() == [f"{NAME}.qdstrm"]
    nothing = captures("nsys", CASE, NSYS_EXT="", NSYS_CODE="4", NSYS_SAYS="out of luck")
    assert nothing.returncode == 2 and "exit code 4" in nothing.stderr and "out of luck" in nothing.stderr


def test_one_failing_case_does_not_end_the_others(captures):
    ncu = captures.write("ncu", NCU.replace('echo report >"$export.ncu-rep"', 'case "$export" in *tiled) ;; *) echo report >"$export.ncu-rep" ;; esac'))
    assert ncu.exists()
    result = captures("ncu", "--filter", "x", LISTED=f"{CASE.replace('ptx_sm90a', 'tiled')}\\n{CASE}")
    assert result.returncode == 2
    assert captures.files() == [f"{NAME}.csv", f"{NAME}.ncu-rep"]


@pytest.mark.parametrize(
    "arguments, says",
    [
        ([], "give one case"),
        (["gemm"], "'gemm' is not a case"),
        (["gemm", "m=1"], "give one case"),
        ([CASE, "--filter", "x"], "a case or --filter, not both"),
        ([CASE, "--set", "full"], "flags for ncu itself go behind --"),
        ([CASE, "--most", "none"], "--most is 'none'"),
        ([CASE, "--out"], "--out needs a value"),
        ([CASE, "--out", "/proc/nowhere"], "cannot write /proc/nowhere"),
    ],
)
def test_wrong_arguments_are_named(captures, arguments, says):
    result = captures("ncu", *arguments)
    assert result.returncode == 2 and says in result.stderr, result
    assert captures.called() == []


@pytest.mark.parametrize("tool", ["ncu", "nsys"])
def test_help_and_bad_arguments_come_before_any_building(tool):
    for command, code in ((["--help"], 0), (["no_case"], 2)):
        result = subprocess.run([SCRIPTS / tool, *command], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
        assert result.returncode == code
        assert ("usage: scripts/" + tool in result.stdout) == (code == 0)
        assert "setting up" not in result.stderr
