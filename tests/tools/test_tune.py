"""The choice of groupnorm's measured plans from timings, and what tools/tune refuses."""

import re
import subprocess
import sys

import pytest

from tests.support.machine import ROOT, Machine

HEADER = "device,sm_count,commit,problem,dtype,variant,choice,estimated,warm_us,cold_us"
FIELDS = "n,hw,channels,groups,fusion,packed".split(",")
PLAN = "bundle,blocks,threads,held".split(",")
PROBLEMS = """network,n,hw,channels,groups,fusion,packed,eps,count
one,1,64,128,32,silu,,,1
one,1,64,128,32,,,,9
two,2,64,128,32,silu,,,1
"""


def timing(row, source="GPU,132,abc", extra=""):
    """A line of timings from values of FIELDS and PLAN, estimated, and two times; `extra` are more fields of the problem."""
    values = row.split(",")
    if len(values) < 13:
        return f"{source},{row}"
    problem = ",".join(f"{name}={value}" for name, value in zip(FIELDS, values) if (name, value) not in (("fusion", "none"), ("packed", "0")))
    plan = ",".join(f"{name}={value}" for name, value in zip(PLAN, values[6:]))
    return f'{source},"{problem}{extra}",bf16,ptx_sm90a,"{plan}",' + ",".join(values[10:])


def written(op, folder, problems, lines, *arguments, header=HEADER):
    """What the script of an op says, its table's text, and the rows in it."""
    (folder / "problems.csv").write_text(problems)
    (folder / "timings.csv").write_text("\n".join([header, *lines]) + "\n")
    out = folder / "table.cpp"
    result = subprocess.run([sys.executable, ROOT / f"kernels/{op}/write_table.py", folder / "timings.csv", "--problems", folder / "problems.csv", "--out", out,
                             *arguments], capture_output=True, text=True, timeout=60)
    text = out.read_text() if out.exists() else ""
    return result, text, re.findall(r"^    \{([0-9, ]+)\},$", text, re.M)


def table(folder, *rows):
    """What groupnorm's script says and the rows of the table that it writes; rows are of timing()."""
    result, _, found = written("groupnorm", folder, PROBLEMS, [row if row.startswith("GPU") else timing(row) for row in rows])
    return result, [tuple(map(int, row.split(", "))) for row in found]


ESTIMATE = "1,64,128,32,silu,0,2,1,64,0,1,10,20"


def test_takes_the_least_sum_of_warm_and_cold(tmp_path):
    result, rows = table(tmp_path, ESTIMATE, "1,64,128,32,silu,0,4,1,96,2,0,9,19", "1,64,128,32,silu,0,8,2,128,6,0,9.5,18")
    assert result.returncode == 0, result.stderr
    assert rows == [(1, 64, 128, 32, 0, 8, 2, 128, 6)]
    assert "plans of 1 of 1 shapes, for 132 SMs" in result.stdout
    assert "return {132, kPlans};" in (tmp_path / "table.cpp").read_text()


@pytest.mark.parametrize("warm, cold, taken", [(9.7, 20, True), (9.8, 20, False), (10.0, 20, False), (8, 20.2, False), (10.06, 15, False), (10.04, 15, True)])
def test_an_entry_wins_one_percent_and_neither_time_gets_worse(tmp_path, warm, cold, taken):
    other = "2,64,128,32,silu,0,2,1,64,0,1,10,20", "2,64,128,32,silu,0,4,1,64,0,0,5,10"  # so that there is a table in any case
    result, rows = table(tmp_path, *other, ESTIMATE, f"1,64,128,32,silu,0,4,1,96,2,0,{warm},{cold}")
    assert result.returncode == 0, result.stderr
    assert ((1, 64, 128, 32, 0, 4, 1, 96, 2) in rows) == taken
    assert (2, 64, 128, 32, 0, 4, 1, 64, 0) in rows and rows == sorted(rows)


def test_one_plan_serves_all_fusions_weighted_by_their_counts(tmp_path):
    # The first is better with SiLU (once in a pass), the second without (nine times); the third was not timed with both.
    rows = [ESTIMATE, "1,64,128,32,silu,0,4,1,96,2,0,5,10", "1,64,128,32,silu,0,8,1,96,2,0,9.9,19.9", "1,64,128,32,silu,0,16,1,96,2,0,1,1",
            "1,64,128,32,none,0,2,1,64,0,1,10,20", "1,64,128,32,none,0,4,1,96,2,0,9.9,19.9", "1,64,128,32,none,0,8,1,96,2,0,9,18"]
    result, chosen = table(tmp_path, *rows)
    assert result.returncode == 0, result.stderr
    assert chosen == [(1, 64, 128, 32, 0, 8, 1, 96, 2)]
    one = next(line.split() for line in result.stdout.splitlines() if line.startswith("one"))
    assert [float(cell) for cell in one[1:6]] == [82.0, 100.0, 21.95, 90.9, 10.85]


@pytest.mark.parametrize("rows, message", [
    ((), "has no timings"),
    ((ESTIMATE,), "nothing is written"),
    ((ESTIMATE, ESTIMATE), ":3: "),
    ((ESTIMATE.replace(",10,20", ",0,20"),), ":2: 0.0 and 20.0 us"),
    ((ESTIMATE.replace(",10,20", ",many,20"),), ":2: "),
    ((ESTIMATE.replace(",1,10,", ",0,10,"),), "no time of the estimate's plan"),
    ((ESTIMATE, "1,64,128"), ":3: "),
    ((timing(ESTIMATE).replace(",held=0", ""),), "'held'"),
    ((timing(ESTIMATE).replace("ptx_sm90a", "tiled"),), "times of tiled in bf16; the table is of ptx_sm90a in bf16"),
])
def test_bad_timings_are_refused_and_write_nothing(tmp_path, rows, message):
    result, _ = table(tmp_path, *rows)
    assert result.returncode == 2 and message in result.stderr, result.stderr
    assert not (tmp_path / "table.cpp").exists() and "Traceback" not in result.stderr


def test_shapes_may_be_of_two_commits_but_not_what_is_compared(tmp_path):
    fast = "4,1,64,0,0,5,10"
    shapes = [timing(row, source) for source, n in (("GPU,132,abc", 1), ("GPU,132,def", 2))
              for row in (f"{n},64,128,32,silu,0,2,1,64,0,1,10,20", f"{n},64,128,32,silu,0,{fast}")]
    result, rows = table(tmp_path, *shapes)
    assert result.returncode == 0 and len(rows) == 2, result.stderr
    assert "commits abc and def" in (tmp_path / "table.cpp").read_text()
    result, _ = table(tmp_path, ESTIMATE, timing(f"1,64,128,32,silu,0,{fast}", "GPU,132,def"))
    assert result.returncode == 2 and "the commit is def, and abc" in result.stderr


def test_an_image_that_is_halved_has_a_row_of_its_own(tmp_path):
    rows = [timing(row, extra=extra) for extra, row in (
        ("", ESTIMATE), ("", "1,64,128,32,silu,0,4,1,96,2,0,5,10"), (",down_w=8", ESTIMATE), (",down_w=8", "1,64,128,32,silu,0,8,2,128,4,0,5,10"))]
    result, chosen = table(tmp_path, *rows)
    assert result.returncode == 0, result.stderr
    assert chosen == [(1, 64, 128, 32, 0, 4, 1, 96, 2), (1, 64, 128, 32, 8, 8, 2, 128, 4)]


CUT = "rows={},columns=96,pingpong=0,multicast=1,splits={}"


@pytest.mark.parametrize("op, network, timed, rows", [
    ("gemm", "network,m,n,k,act,residual,part_columns,count\none,64,128,256,,,,1\none,64,128,256,,,64,9\n", (("m=64,n=128,k=256", "ptx_sm90a"), ("m=64,n=128,k=256,act=geglu", "ptx_sm90a"),
                                                                                      ("m=64,n=128,k=256,residual=1", "ptx_sm90a"), ("m=64,n=128,k=256,part_columns=64", "ptx_sm90a")),
     ["64, 128, 256, 0, 0, 0, 128, 96, 0, 1, 2, 1", "64, 128, 256, 0, 0, 64, 128, 96, 0, 1, 2, 1", "64, 128, 256, 0, 1, 0, 128, 96, 0, 1, 2, 1",
      "64, 128, 256, 1, 0, 0, 128, 96, 0, 1, 2, 1"]),
    ("conv2d", "network,n,h,w,cin,cout,kernel,pad,count\none,1,8,8,64,64,,,1\n",
     (("n=1,h=8,w=8,cin=64,cout=64", "ptx_sm90a"), ("n=1,h=8,w=8,cin=64,cout=64,residual=1", "ptx_sm90a"),
      ("n=1,h=8,w=8,cin=64,cout=64,kernel=1", "ptx_sm90a_halo")),
     ["1, 8, 8, 64, 64, 3, 1, 1, 0, 0, 0, 128, 96, 0, 1, 2", "1, 8, 8, 64, 64, 1, 1, 0, 0, 0, 0, 128, 96, 0, 1, 2"]),
])
def test_schedules_of_products_become_a_table_that_compiles(tmp_path, op, network, timed, rows):
    lines = [f'GPU,132,abc,"{problem}",bf16,{variant},"{CUT.format(64 * splits, splits)}",{2 - splits},{12 - splits},{22 - splits}'
             for problem, variant in timed for splits in (1, 2)]
    result, _, found = written(op, tmp_path, network, lines)
    assert result.returncode == 0 and found == rows, result.stderr
    compiled = subprocess.run(["c++", "-std=c++20", "-fsyntax-only", f"-I{ROOT}", tmp_path / "table.cpp"], capture_output=True, text=True, timeout=60)
    assert compiled.returncode == 0, compiled.stderr


FIRST, SECOND = "64, 128, 256, 0, 0, 0, 128, {}, 0, 1, 2, 1", "64, 128, 512, 0, 0, 0, 128, {}, 0, 1, 2, 1"


def schedules_written(folder, problem, *arguments, gpu="GPU", sms=132, commit="abc", columns=96, best=2):
    """Times two schedules of one problem of gemm, 1 being the estimate's: what the script says, the table's first comment, and its rows."""
    lines = [f'{gpu},{sms},{commit},"{problem}",bf16,ptx_sm90a,"rows={64 * splits},columns={columns},pingpong=0,multicast=1,splits={splits}",{2 - splits},'
             f'{11 + abs(splits - best)},{21 + abs(splits - best)}' for splits in (1, 2)]
    result, text, rows = written("gemm", folder, "network,m,n,k,count\none,64,128,256,1\n", lines, *arguments)
    return result, " ".join(line.removeprefix("// ") for line in text.partition("#include")[0].splitlines()), rows


def test_rows_of_shapes_that_were_not_timed_are_kept_where_asked(tmp_path):
    def again(*arguments, **others):
        return schedules_written(tmp_path, *arguments, **others)

    gpu = "GPU of " + "a-long-name-" * 12 + "end"  # which no line of the comment may break
    assert again("m=64,n=128,k=256", gpu=gpu)[0].returncode == 0
    result, about, rows = again("m=64,n=128,k=512", "--keep", commit="def", columns=32)
    assert result.returncode == 0 and "1 of 1 shapes, for 132 SMs; 1 kept" in result.stdout, result.stderr
    assert rows == [FIRST.format(96), SECOND.format(32)]
    assert "GPU, 132 SMs, commit def" in about and about.endswith(f"are of earlier timings: {gpu}, 132 SMs, commit abc.")
    result, about, rows = again("m=64,n=128,k=256", "--keep", commit="123", columns=64)
    assert rows == [FIRST.format(64), SECOND.format(32)] and about.endswith(f"timings: GPU, 132 SMs, commit def; {gpu}, 132 SMs, commit abc.")
    result, about, rows = again("m=64,n=128,k=256", "--keep", commit="def", columns=64)
    assert about.endswith(f"timings: GPU, 132 SMs, commit 123; GPU, 132 SMs, commit def; {gpu}, 132 SMs, commit abc.")  # each once
    result, _, kept = again("m=64,n=128,k=256", "--keep", sms=78)
    assert result.returncode == 2 and "is of a GPU with 132 SMs" in result.stderr and kept == rows
    result, _, rows = again("m=64,n=128,k=256", "--keep", best=1)  # nothing is better: the old row does not stay
    assert result.returncode == 0 and rows == [SECOND.format(32)], result.stderr
    result, _, kept = again("m=64,n=128,k=512", "--keep", best=1)
    assert result.returncode == 2 and "timed now or before" in result.stderr and kept == rows
    assert again("m=64,n=128,k=512", columns=64)[2] == [SECOND.format(64)]  # without --keep


ROW = "    {" + FIRST.format(96) + "},\n"


@pytest.mark.parametrize("old, new", [
    ("SMs", "XMs"), ("kSchedules = ", "kOthers = "), ("array<MeasuredSchedule, 1>", "array<MeasuredSchedule, 2>"), (ROW, ROW + ROW.replace("256", "9x6")),
    (ROW, ROW.replace(", 1}", ", 1, 1}")), (ROW, "<<<<<<< ours\n"),
])
def test_a_damaged_table_is_refused_and_stays(tmp_path, old, new):
    schedules_written(tmp_path, "m=64,n=128,k=256")
    table = tmp_path / "table.cpp"
    text = table.read_text()
    assert old in text
    damaged = text.replace(old, new)
    table.write_text(damaged)
    result, _, _ = schedules_written(tmp_path, "m=64,n=128,k=512", "--keep")
    assert result.returncode == 2 and "--keep takes a table" in result.stderr and table.read_text() == damaged, result.stderr


@pytest.mark.parametrize("asked, taken", [((9, 1), True), ((1, 9), False), ((0, 0), False), (("", ""), False)])
def test_kinds_weigh_as_graphs_ask_for_them_and_one_at_least(tmp_path, asked, taken):
    times = (("m=64,n=128,k=256", (10, 9)), ("m=64,n=128,k=256,bias=0", (10, 12)))
    lines = [f'GPU,132,abc,"{problem}",bf16,ptx_sm90a,"{CUT.format(64 * splits, splits)}",{2 - splits},{us[splits - 1]},{us[splits - 1]},{count}'
             for (problem, us), count in zip(times, asked) for splits in (1, 2)]
    result, _, _ = written("gemm", tmp_path, "network,m,n,k,count\none,1,8,8,1\n", lines, header=HEADER + ",asked")
    assert (result.returncode == 0) == taken == (tmp_path / "table.cpp").exists(), result.stderr
    assert taken or "nothing is written" in result.stderr


@pytest.mark.parametrize("arguments, code, message", [
    (["--help"], 0, "usage: tools/tune OP"),
    ([], 2, "needs an op"),
    (["gemm", "--keep"], 2, "--keep goes behind"),
    (["layernorm"], 2, "layernorm has no table of what is fastest; these do: attention conv2d gemm groupnorm"),
    (["groupnorm", "--timings", "a", "b"], 2, "needs one file"),
    (["groupnorm", "--device", "1", "--timings", "a"], 2, "goes behind the op and alone"),
    (["groupnorm", "--timings", "/nowhere/times.csv"], 2, "/nowhere/times.csv"),
    (["groupnorm", "--budget=60"], 2, "all problems"),
])
def test_script(arguments, code, message):
    result = subprocess.run([ROOT / "tools/tune", *arguments], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert result.returncode == code and message in result.stdout + result.stderr, result.stderr


def test_script_needs_a_gpu_that_runs_the_kernel(tmp_path):
    """Before anything is installed or built."""
    machine = Machine(tmp_path)
    machine.driver("8 9 NVIDIA L40S")
    result = machine.run(ROOT / "tools/tune", "groupnorm")
    assert result.returncode == 2 and "looking for a GPU: what groupnorm chooses from runs on GPUs of compute capability 9.0 alone" in result.stderr, result.stderr


def test_times_of_a_variant_without_a_table_are_passed_over(tmp_path):
    cut = '"rows=128,keys=128,blocks=1,turns={},splits=1"'
    lines = [f'GPU,132,abc,"batch=1,heads=1,seq_q=256,seq_kv=256,dim={dim}",bf16,{variant},{choice},{estimated},{9 + estimated},{19 + estimated}'
             for dim, variant, choice, estimated in ((64, "ptx_sm90a", cut.format(1), 1), (64, "ptx_sm90a", cut.format(0), 0),
                                                     (512, "ptx_sm90a_wide", '"splits=1"', 1), (512, "ptx_sm90a_wide", '"splits=2"', 0))]
    result, _, rows = written("attention", tmp_path, "network,batch,heads,seq_q,seq_kv,dim,count\none,1,1,256,256,64,1\none,1,1,256,256,512,1\n", lines)
    assert result.returncode == 0 and rows == ["1, 1, 256, 256, 64, 128, 128, 1, 0, 1"], result.stderr
