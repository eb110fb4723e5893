"""tests/gpu/prove_rounds.py: which rows it takes and what it makes of their times, without PyTorch."""

import subprocess
import sys

import pytest

from tests.cli.program import ROOT
from tests.gpu import prove_rounds


def row(problem, us, op="gemm", variant="torch_eager", status="ok", mhz="1980", bound="compute:tensor_bf16", gpu="GPU-1"):
    return {"op": op, "problem": problem, "dtype": "bf16", "variant": variant, "status": status, "time_cold_us": str(us), "sm_clock_mhz": mhz,
            "bound": bound, "gpu_uuid": gpu}


def here(one, us, loop_us=None, mhz="1980", gpu="1"):
    name = prove_rounds.case_of(one)
    return {name: {"case": name, "us": str(us), "loop_us": str(loop_us or us), "mhz": mhz, "gpu": gpu}}


def test_problems_that_are_one_call():
    assert prove_rounds.fields_of("gemm", "m=8,n=16,k=24,bias=0") == {"m": "8", "n": "16", "k": "24", "bias": "0"}
    assert prove_rounds.fields_of("gemm", "m=8,n=16,k=24,act=silu") is None
    conv = prove_rounds.fields_of("conv2d", "n=1,h=8,w=8,cin=4,cout=4,kernel=5")
    assert conv["pad"] == "2" and conv["stride"] == "1" and conv["bias"] == "1"
    assert prove_rounds.fields_of("conv2d", "n=1,h=8,w=8,cin=4,cout=4,kernel=1,pad=0")["pad"] == "0"
    for more in ("residual=1", "upsample=1", "side=8"):
        assert prove_rounds.fields_of("conv2d", f"n=1,h=8,w=8,cin=4,cout=4,{more}") is None
    attention = prove_rounds.fields_of("attention", "batch=1,heads=2,seq_q=8,seq_kv=8,dim=64")
    assert attention["layout"] == "separate" and attention["scale"] == "0"


def test_rows_are_chosen_evenly_over_their_times():
    rows = [row(f"m={m},n=8,k=8", 20 + m) for m in range(80, 0, -1)]
    taken = prove_rounds.chosen(rows, 40)
    assert [float(one["time_cold_us"]) for one in taken] == [21 + 2 * i for i in range(40)]


def test_what_is_no_row_of_a_vendors_call():
    good = row("m=1,n=8,k=8", 20)
    others = [row("m=2,n=8,k=8", 19.9), row("m=3,n=8,k=8", 30, variant="torch_compile"), row("m=4,n=8,k=8", 30, status="incorrect"),
              row("m=5,n=8,k=8,residual=1", 30), row("n=1,hw=64,channels=64", 30, op="groupnorm"),
              row("batch=1,heads=2,seq_q=8,seq_kv=8,dim=64", 30, op="attention", variant="torch_flash"),
              row("m=6,n=8,k=8", "nan", status="throttled")]
    assert prove_rounds.chosen([*others, good], 1) == [good]
    with pytest.raises(ValueError, match="only 1 rows of 20 us and more are one call; --most is 2"):
        prove_rounds.chosen([*others, good], 2)


@pytest.mark.parametrize("bound, mhz, here_mhz, raw, equal", [
    ("compute:tensor_bf16", "1980", "1975", 10, None),    # equal clocks
    ("compute:tensor_bf16", "1800", "1980", 10, 0),       # 110 us at 1800 MHz are 100 at 1980
    ("memory:tensor_bf16", "1800", "1980", 10, None),     # memory has a clock of its own
    ("", "1800", "1980", 10, 0),
    ("compute:tensor_bf16", "", "1980", 10, None),
])
def test_equal_clocks(bound, mhz, here_mhz, raw, equal):
    one = row("m=1,n=8,k=8", 110, bound=bound, mhz=mhz)
    found_raw, found_equal = prove_rounds.compared(one, {"us": "100", "mhz": here_mhz})
    assert found_raw == pytest.approx(raw) and (found_equal is None if equal is None else found_equal == pytest.approx(equal, abs=1e-9))


def test_the_table_counts_the_loops_that_agree_and_the_rows():
    rows = [row("m=1,n=8,k=8", 102), row("m=2,n=8,k=8", 120), row("m=3,n=8,k=8", 110, mhz="1800", gpu="GPU-2")]
    found = {key: value for one, loop_us in zip(rows, (102, 97.5, 104)) for key, value in here(one, 100, loop_us).items()}
    page, within = prove_rounds.table(rows, found, "read")
    assert within == 2
    assert "| `gemm/m=2,n=8,k=8/bf16/torch_eager` | compute | 100.00 | 97.50 | -2.5 % | 120.00 | +20.0 % | - | 1980 1980 | yes |" in page
    assert "| 104.00 | +4.0 % | 110.00 | +10.0 % | +0.0 % | 1800 1980 | no |" in page
    assert "by reading: the loops agree within 3 % on 2 of 3 rows; 2 rows of the run are within it; 1 of them were timed here on another GPU" in page
    assert "by writing: the loops agree within 3 % on 2 of 3" in prove_rounds.table(rows, found, "write")[0]


def test_what_was_timed_is_kept(tmp_path):
    file = tmp_path / "rounds-read.csv"
    assert prove_rounds.kept(file) == {}
    found = here(row("m=1,n=8,k=8", 20), "21.5")
    prove_rounds.keep(file, found)
    assert prove_rounds.kept(file) == found


def test_wrong_calls(tmp_path):
    for more in ([], ["--rows", tmp_path, "--program", "x"], ["--rows", tmp_path, "--most", "0"], ["--rows", tmp_path, "--flush", "never"]):
        command = [sys.executable, ROOT / "tests/gpu/prove_rounds.py", "--out", tmp_path / "out", *more]
        assert subprocess.run(list(map(str, command)), capture_output=True).returncode == 2
