"""The choice of what is fastest from timings, the tables that are written of it, and what tools/tune refuses."""

import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.support.machine import ROOT, Machine
from tools import tuned_table

HEADER = "device,sm_count,commit,problem,dtype,variant,choice,estimated,warm_us,cold_us"
NORMS = "network,n,hw,channels,groups,fusion,count\none,1,64,128,32,silu,1\none,1,64,128,32,,9\ntwo,2,64,128,32,silu,1\n"
PRODUCTS = "network,m,n,k,count\none,64,128,256,1\n"


def timing(problem, choice, warm, cold, estimated=0, variant="ptx_sm90a", dtype="bf16", source="GPU,132,abc"):
    return f'{source},"{problem}",{dtype},{variant},"{choice}",{estimated},{warm},{cold}'


def norm(blocks, warm, cold, estimated=0, n=1, fusion=",fusion=silu", **others):
    """A time of a group norm's plan: each is another number of blocks."""
    return timing(f"n={n},hw=64,channels=128,groups=32{fusion}", f"bundle=2,blocks={blocks},threads=64,held=0", warm, cold, estimated, **others)


def cut(splits, columns=96):
    return f"rows={64 * splits},columns={columns},pingpong=0,multicast=1,splits={splits}"


@pytest.fixture
def write(tmp_path, monkeypatch, capsys):
    def run(op, problems, lines, *arguments):
        """Exit code, what is said, the table's text, and the rows in it."""
        (tmp_path / "problems.csv").write_text(problems)
        (tmp_path / "timings.csv").write_text("\n".join([HEADER, *lines]) + "\n")
        out = tmp_path / "table.cpp"
        monkeypatch.setattr(sys, "argv", ["tuned_table", op, f"{tmp_path}/timings.csv", "--problems", f"{tmp_path}/problems.csv", "--out", str(out), *arguments])
        code, said = tuned_table.main(), capsys.readouterr()
        text = out.read_text() if out.exists() else ""
        return SimpleNamespace(code=code, said=said.out + said.err, text=text, rows=re.findall(r"^    \{([0-9, ]+)\},$", text, re.M))

    return run


ESTIMATE = norm(1, 10, 20, estimated=1)


def test_takes_the_least_sum_of_warm_and_cold(write):
    made = write("groupnorm", NORMS, [ESTIMATE, norm(2, 9, 19), norm(3, 9.5, 18)])
    assert made.code == 0 and made.rows == ["1, 64, 128, 32, 0, 2, 3, 64, 0"], made.said
    assert "plans of 1 of 1 shapes, for 132 SMs" in made.said and "return {132, kPlans};" in made.text


@pytest.mark.parametrize("warm, cold, taken", [(9.7, 20, True), (9.8, 20, False), (10.0, 20, False), (8, 20.2, False), (10.06, 15, False), (10.04, 15, True)])
def test_an_entry_wins_one_percent_and_neither_time_gets_worse(write, warm, cold, taken):
    other = norm(1, 10, 20, estimated=1, n=2), norm(2, 5, 10, n=2)  # so that there is a table in any case
    made = write("groupnorm", NORMS, [*other, ESTIMATE, norm(2, warm, cold)])
    assert made.code == 0 and made.rows == ["1, 64, 128, 32, 0, 2, 2, 64, 0"] * taken + ["2, 64, 128, 32, 0, 2, 2, 64, 0"], made.said


def test_one_plan_serves_all_fusions_weighted_by_their_counts(write):
    # The second is better with SiLU (once in a pass), the third without (nine times); the fourth was not timed with both.
    lines = [ESTIMATE, norm(2, 5, 10), norm(3, 9.9, 19.9), norm(4, 1, 1),
             *(norm(*one, fusion="") for one in ((1, 10, 20, 1), (2, 9.9, 19.9), (3, 9, 18)))]  # fmt: skip
    made = write("groupnorm", NORMS, lines)
    assert made.code == 0 and made.rows == ["1, 64, 128, 32, 0, 2, 3, 64, 0"], made.said
    one = next(line.split() for line in made.said.splitlines() if line.startswith("one"))
    assert [float(cell) for cell in one[1:6]] == [82.0, 100.0, 21.95, 90.9, 10.85]


@pytest.mark.parametrize("images, counts, taken", [(1, (9, 1), True), (1, (1, 9), False), (9, (9, 1), False)])
def test_kinds_weigh_as_networks_ask_for_them_and_one_where_none_does(write, images, counts, taken):
    lines = [norm(blocks, us, us, int(blocks == 1), fusion=fusion)
             for fusion, second in (("", 9), (",fusion=silu", 12)) for blocks, us in ((1, 10), (2, second))]  # fmt: skip
    asked = "".join(f"one,{images},64,128,32,{fusion},{count}\n" for fusion, count in zip(("", "silu"), counts))
    made = write("groupnorm", f"network,n,hw,channels,groups,fusion,count\n{asked}", lines)
    assert (made.code == 0) == taken == bool(made.rows), made.said
    assert taken or "nothing is written" in made.said


@pytest.mark.parametrize("lines, message", [
    ((), "has no timings"),
    ((ESTIMATE,), "nothing is written"),
    ((ESTIMATE, ESTIMATE), ":3: "),
    ((norm(1, 0, 20, 1),), ":2: 0.0 and 20.0 us"),
    ((norm(1, "many", 20, 1),), ":2: "),
    ((norm(1, 10, 20),), "no time of the estimate's plan"),
    ((ESTIMATE, "GPU,132,abc,1,64,128"), ":3: "),
    ((ESTIMATE.replace(",held=0", ""),), "'held'"),
    ((norm(1, 10, 20, 1, variant="tiled"),), "times of tiled in bf16; the table is of ptx_sm90a in bf16"),
    ((ESTIMATE, norm(2, 5, 10, source="GPU,132,def")), "the commit is def, and abc"),
    ((ESTIMATE, norm(2, 5, 10, source="Other,132,abc")), "of one GPU"),
])
def test_bad_timings_are_refused_and_write_nothing(write, lines, message):
    made = write("groupnorm", NORMS, lines)
    assert made.code == 2 and message in made.said and not made.text, made.said


def test_shapes_may_be_of_two_commits(write):
    lines = [norm(*one, n=n, source=f"GPU,132,{commit}") for n, commit in ((1, "abc"), (2, "def")) for one in ((1, 10, 20, 1), (2, 5, 10))]
    made = write("groupnorm", NORMS, lines)
    assert made.code == 0 and len(made.rows) == 2 and "commits abc and def" in made.text, made.said


# Of each op: a network, problems and their variants, the estimate's choice and a faster one, and rows.
NORM, ATTENTION = "n=1,hw=64,channels=128,groups=32", "batch=1,heads=1,seq_q=256,seq_kv=256,dim="
EACH = [
    ("gemm", "network,m,n,k,act,residual,part_columns,count\none,64,128,256,,,,1\none,64,128,256,,,64,9\n",
     [(f"m=64,n=128,k=256{fusion}", "ptx_sm90a") for fusion in ("", ",act=geglu", ",residual=1", ",part_columns=64")]
     + [("m=64,n=64,k=256,layout=nn", "ptx_sm90a")], (cut(1), cut(2)),  # gradients have no table
     [f"64, 128, 256, {fusion}, 128, 96, 0, 1, 2, 1" for fusion in ("0, 0, 0", "0, 0, 64", "0, 1, 0", "1, 0, 0")]),
    ("conv2d", "network,n,h,w,cin,cout,kernel,pad,count\none,1,8,8,64,64,,,1\n",
     [("n=1,h=8,w=8,cin=64,cout=64", "ptx_sm90a"), ("n=1,h=8,w=8,cin=64,cout=64,residual=1", "ptx_sm90a"),
      ("n=1,h=8,w=8,cin=64,cout=64,kernel=1", "ptx_sm90a_halo")], (cut(1), cut(2)),
     ["1, 8, 8, 64, 64, 3, 1, 1, 0, 0, 0, 128, 96, 0, 1, 2", "1, 8, 8, 64, 64, 1, 1, 0, 0, 0, 0, 128, 96, 0, 1, 2"]),
    ("groupnorm", NORMS, [(NORM, "ptx_sm90a"), (NORM + ",down_w=8", "ptx_sm90a")], [f"bundle=2,blocks={one},threads=64,held=0" for one in (1, 2)],
     ["1, 64, 128, 32, 0, 2, 2, 64, 0", "1, 64, 128, 32, 8, 2, 2, 64, 0"]),
    ("attention", "network,batch,heads,seq_q,seq_kv,dim,count\none,1,1,256,256,64,1\n",  # the wide variant has no table
     [(ATTENTION + "64", "ptx_sm90a"), (ATTENTION + "512", "ptx_sm90a_wide")], [f"rows=128,keys=128,blocks=1,turns={one},splits=1" for one in (1, 0)],
     ["1, 1, 256, 256, 64, 128, 128, 1, 0, 1"]),
]  # fmt: skip


@pytest.mark.parametrize("op, problems, timed, choices, rows", EACH, ids=[one[0] for one in EACH])
def test_tables_of_each_op_compile(write, tmp_path, op, problems, timed, choices, rows):
    lines = [timing(problem, choice, 10 - place, 20 - place, 1 - place, variant) for problem, variant in timed for place, choice in enumerate(choices)]
    made = write(op, problems, lines)
    assert made.code == 0 and made.rows == rows, made.said
    compiled = subprocess.run(["c++", "-std=c++20", "-fsyntax-only", f"-I{ROOT}", tmp_path / "table.cpp"], capture_output=True, text=True, timeout=60)
    assert compiled.returncode == 0, compiled.stderr


@pytest.mark.parametrize("op, tuned", tuned_table.TABLES.items(), ids=list(tuned_table.TABLES))
def test_the_rooms_own_tables_can_be_kept(op, tuned):
    (sm_count, source), rows = tuned_table.read_table(tuned, ROOT / f"kernels/{tuned.room or op}/measured_{tuned.name}s.cpp")
    assert sm_count == 132 and "NVIDIA" in source and {variant for variant, _ in rows} == set(tuned.arrays)


FIRST, SECOND = "64, 128, 256, 0, 0, 0, 128, {}, 0, 1, 2, 1", "64, 128, 512, 0, 0, 0, 128, {}, 0, 1, 2, 1"


@pytest.fixture
def again(write):
    def run(k, *arguments, columns=96, best=2, **source):
        """Times two schedules of one problem of gemm, 1 being the estimate's: what is written, and the table's first comment."""
        source = ",".join(map(str, ({"gpu": "GPU", "sms": 132, "commit": "abc"} | source).values()))
        lines = [timing(f"m=64,n=128,k={k}", cut(splits, columns), 11 + abs(splits - best), 21 + abs(splits - best), 2 - splits, source=source) for splits in (1, 2)]
        made = write("gemm", PRODUCTS, lines, *arguments)
        made.about = " ".join(line.removeprefix("// ") for line in made.text.partition("#include")[0].splitlines())
        return made

    return run


def test_rows_of_shapes_that_were_not_timed_are_kept_where_asked(again):
    gpu = "GPU of " + "a-long-name-" * 12 + "end"  # which no line of the comment may break
    assert again(256, gpu=gpu).code == 0
    made = again(512, "--keep", commit="def", columns=32)
    assert made.code == 0 and "1 of 1 shapes, for 132 SMs; 1 kept" in made.said and made.rows == [FIRST.format(96), SECOND.format(32)], made.said
    assert "GPU, 132 SMs, commit def" in made.about and made.about.endswith(f"are of earlier timings: {gpu}, 132 SMs, commit abc.")
    made = again(256, "--keep", commit="123", columns=64)
    assert made.rows == [FIRST.format(64), SECOND.format(32)] and made.about.endswith(f"timings: GPU, 132 SMs, commit def; {gpu}, 132 SMs, commit abc.")
    made = again(256, "--keep", commit="def", columns=64)
    assert made.about.endswith(f"timings: GPU, 132 SMs, commit 123; GPU, 132 SMs, commit def; {gpu}, 132 SMs, commit abc.")  # each once
    refused = again(256, "--keep", sms=78)
    assert refused.code == 2 and "is of a GPU with 132 SMs" in refused.said and refused.text == made.text
    made = again(256, "--keep", best=1)  # nothing is better: the old row does not stay
    assert made.code == 0 and made.rows == [SECOND.format(32)], made.said
    refused = again(512, "--keep", best=1)
    assert refused.code == 2 and "timed now or before" in refused.said and refused.text == made.text
    assert again(512, columns=64).rows == [SECOND.format(64)]  # without --keep


ROW = "    {" + FIRST.format(96) + "},\n"


@pytest.mark.parametrize("old, new", [
    ("SMs", "XMs"), ("kSchedules = ", "kOthers = "), ("array<MeasuredSchedule, 1>", "array<MeasuredSchedule, 2>"), (ROW, ROW + ROW.replace("256", "9x6")),
    (ROW, ROW.replace(", 1}", ", 1, 1}")), (ROW, "<<<<<<< ours\n"),
])
def test_a_damaged_table_is_refused_and_stays(again, tmp_path, old, new):
    text = again(256).text
    assert old in text
    (tmp_path / "table.cpp").write_text(text.replace(old, new))
    made = again(512, "--keep")
    assert made.code == 2 and "--keep takes a table" in made.said and made.text == text.replace(old, new), made.said


@pytest.mark.parametrize("arguments, code, message", [
    (["--help"], 0, "usage: tools/tune OP"),
    ([], 2, "needs an op"),
    (["layernorm"], 2, "'layernorm' (choose from 'attention', 'conv2d', 'gemm', 'groupnorm')"),
    (["gemm", "--keep"], 2, "--timings FILE.csv [--keep]"),
    (["groupnorm", "--budget=60"], 2, "all problems"),
    (["groupnorm", "--timings", "a", "b"], 2, "unrecognized arguments: b"),
    (["groupnorm", "--timings", "/nowhere/times.csv"], 2, "/nowhere/times.csv"),
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
