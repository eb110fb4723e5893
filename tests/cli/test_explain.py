"""explain as a user meets it: a recorded run without a GPU, a run of the host's, names that nothing has."""

import shutil

import pytest

from tests.cli.program import ROOT, needs_program, rows, run, strict
from tests.cli.gated_runs import write_run

pytestmark = needs_program
RECORDED = ROOT / "reports" / "recorded" / "nvidia-h200"
ROWS = rows(RECORDED)
OPS = len({row["op"] for row in ROWS})
OF_OTHER_DTYPES = {(row["op"], row["problem"]) for row in ROWS if row["dtype"] != "bf16"}
IN_ONE_DTYPE = next(f"{row['op']}/{row['problem']}" for row in ROWS if (row["op"], row["problem"]) not in OF_OTHER_DTYPES)
CASE = "gemm/m=1024,n=1152,k=384/bf16/ptx_sm90a"


def explained(case, folder, *more):
    result = run("explain", case, "--run", folder, *more)
    assert result.returncode == 0 and not result.stderr, result
    return result.stdout


def test_a_recorded_row():
    text = explained(CASE, RECORDED)
    assert text.startswith(f"{CASE} on NVIDIA H200") and "\nlaunch: " in text and "\nevidence" in text
    assert "cublaslt" in text.split("the same problem by")[1] and "not known: " in text
    json = strict(explained(CASE, RECORDED, "--json"))
    assert json["findings"][0]["rule"] == "launch" and json["evidence"]["launch_pct"]["unit"] == "%"
    assert 0 < json["evidence"]["memory_pct"]["value"] < 100
    lacking = {unknown["why"]: unknown["figures"] for unknown in json["unknown"]}
    assert any("traffic" in figures and "fit into L2" in why for why, figures in lacking.items())
    assert explained(CASE, RECORDED) == text, "the same row gets the same answer"


def test_a_training_step():
    """A row like any network's, for gate too."""
    folder = RECORDED.with_name("nvidia-h200-training")
    text = explained("network/name=unetcu,batch=32,training=1/bf16/plan_own", folder)
    assert "torch_compile" in text.split("the same problem by")[1] and "train; then explain" in text
    gated = run("gate", "--baseline", folder, "--candidate", folder)
    assert gated.returncode == 0 and "0 regressed" in gated.stdout and "unetcu-train-b32" in gated.stdout, gated


def test_a_case_as_a_table_prints_it(tmp_path):
    folder = write_run(tmp_path / "r", [50.0, 40.0])
    long = "m=1,n=64,k=64,act=silu,bias=none,and=so,on=and,on=until,it=is,cut"
    text = (folder / "sweep.csv").read_text()
    (folder / "sweep.csv").write_text(text.replace('"m=1,n=64,k=64"', f'"{long}"'))
    (folder / "samples.jsonl").write_text((folder / "samples.jsonl").read_text().replace("m=1,n=64,k=64", long))
    for words in (["gemm", long, "bf16", "ptx"], [f"gemm  {long}   bf16 ptx"], [f"gemm   {long[:61]}...  bf16  ptx     50.01      - 3.1  -  ok"],
                  ["gemm/m=1"], ["gemm", "m=1"], [f"gemm/{long}/bf16/ptx"], [f"gemm/{long}/bf16/"]):
        result = run("explain", *words, "--run", folder)
        assert result.returncode == 0 and result.stdout.startswith(f"gemm/{long}/bf16/ptx"), (words, result)
    for words in (["gemm"], ["gem"], ["gemm/m="]):
        result = run("explain", *words, "--run", folder)
        assert result.returncode == 2 and "2 rows begin so" in result.stderr and f"gemm/{long}/bf16/ptx" in result.stderr
    beginning = write_run(tmp_path / "s", [50.0] * 12)  # m=1 and m=10, m=11, m=12
    result = run("explain", "gemm/m=1,n=64,k=64/bf16/ptx", "--run", beginning)
    assert result.returncode == 0 and result.stdout.startswith("gemm/m=1,n=64,k=64/")


def test_a_run_with_and_without_ceilings(tmp_path):
    folder = write_run(tmp_path / "r", [50.0, 40.0])
    case = "gemm/m=1,n=64,k=64/bf16/ptx"
    lacking = strict(explained(case, folder, "--json"))
    assert "memory_pct" in lacking["unknown"][0]["figures"] and "no ceilings" in lacking["unknown"][0]["why"]
    (folder / "ceilings.csv").write_text("name,value,unit\ndram_copy,1000,GB/s\n")
    json = strict(explained(case, folder, "--json"))
    assert json["evidence"]["memory_pct"]["value"] == pytest.approx(0.2, rel=0.02)
    (folder / "ceilings.csv").write_text("name,value,unit,device\ndram_copy,1000,GB/s,Some Other GPU\n")
    other = run("explain", case, "--run", folder)
    assert other.returncode == 2 and "ceilings are of 'Some Other GPU', the row is of 'Test GPU'" in other.stderr and not other.stdout
    (folder / "ceilings.csv").unlink()
    (folder / "ceilings.csv").symlink_to("none")
    dangling = run("explain", case, "--run", folder)
    assert dangling.returncode == 2 and "ceilings.csv" in dangling.stderr
    (folder / "ceilings.csv").unlink()
    # Without --run: the newest below runs/.
    (tmp_path / "runs" / "device").mkdir(parents=True)
    shutil.move(folder, tmp_path / "runs" / "device" / "time")
    result = run("explain", case, cwd=tmp_path)
    assert result.returncode == 0 and result.stdout.startswith(case)


@pytest.mark.parametrize("case, says", [
    ("gemm", "rows begin so; name more of op/problem/dtype/variant:\n  gemm/"),
    ("gemm/m=1024,n=1152,k=384/bf16/ptx_sm90a/more", "is more than a case"),
    ("gemn/m=1024,n=1152,k=384/bf16/ptx_sm90a", f"has no row of op 'gemn'; it has {OPS}; did you mean 'gemm'?"),
    ("gemm/m=1024,n=1152,k=385/bf16/ptx_sm90a", "has no row of problem 'm=1024,n=1152,k=385'"),
    (f"{IN_ONE_DTYPE}/fp32/ptx_sm90a", "has no row of dtype 'fp32'; it has bf16"),
    ("gemm/m=1024,n=1152,k=384/bf16/ptx_sm91", "did you mean 'ptx_sm90a'?"),
])
def test_a_name_that_nothing_has(case, says):
    result = run("explain", case, "--run", RECORDED)
    assert result.returncode == 2 and says in result.stderr and not result.stdout


def test_folders_that_are_no_runs(tmp_path):
    for arguments, says in ((["--run", tmp_path / "none"], "no such folder"), (["--run", tmp_path], "sweep.csv"), ([], "there is no run in runs/")):
        result = run("explain", CASE, *arguments, cwd=tmp_path)
        assert result.returncode == 2 and says in result.stderr and not result.stdout, result
