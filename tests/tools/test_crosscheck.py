"""tools/crosscheck: ncu's page beside a row, and which of PyTorch's rows are timed again."""

import csv
import sys
from types import SimpleNamespace

import pytest

from tests.support.machine import load_tool

CASE = "gemm/m=8,n=8,k=8/bf16/ptx"
ROW = {"op": "gemm", "problem": "m=8,n=8,k=8", "dtype": "bf16", "variant": "ptx", "kind": "ptx", "status": "ok", "time_cold_us": 102, "bound": "compute: bf16",
       "sm_clock_mhz": 1800, "dram_read_bytes": 40e6, "dram_write_bytes": 10e6, "occupancy_pct": 50, "counter_status": "ok"}
# As ncu 2025.3 writes it, cut down to a few columns: two kernels of one launch.
HEADER = "ID,thread Domain:Push/Pop_Range:Msg,Kernel Name,dram__bytes_read.sum,dram__bytes_write.sum,gpu__time_duration.sum,sm__warps_active.avg.pct_of_peak_sustained_active,gpc__cycles_elapsed.avg.per_second"


def page(us=100, range_=f"<default domain>:{CASE}:none", read="39,000,000", mhz="1,800,000,000", unit="ns"):
    lines = [HEADER.split(","), ["", "", "", "byte", "byte", unit, "%", "hz"], ["0", range_, "f(int, int)", read, "0", f"{800 * us:,.0f}", "50", mhz],
             ["1", range_, "g", "0", "10,500,000", f"{200 * us:,.0f}", "50", mhz]]
    return "==PROF== Connected\n" + "".join(",".join(f'"{field}"' for field in line) + "\n" for line in lines)


tool = load_tool("crosscheck")


def write_run(folder, *rows):
    with open(folder / "sweep.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, ROW)
        writer.writeheader()
        writer.writerows(ROW | row for row in rows)


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    def run(text, **changes):
        """Exit code, and what was printed."""
        write_run(tmp_path, changes)
        (tmp_path / "captures").mkdir(exist_ok=True)
        (tmp_path / "captures/a.csv").write_text(text)
        monkeypatch.setattr(sys, "argv", ["crosscheck", "ncu", str(tmp_path)])
        code = tool.main()
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


def verdicts(result):
    lines = [line.split() for line in result[1].splitlines() if line.startswith("  ")]
    return {line[0].rstrip(","): next(word for word in ("agrees", "DIFFERS", "-") if word in line) for line in lines}


def test_figures_are_summed_over_kernels_and_judged(check):
    code, said = check(page())
    assert code == 0 and "+2.0 %" in said and "3 of 3 agree" in said, said
    result = check(page(us=90))
    assert result[0] == 1 and verdicts(result) == {"time": "DIFFERS", "SM": "-", "DRAM": "agrees", "occupancy": "agrees"}
    assert verdicts(check(page(read="60,000,000")))["DRAM"] == "DIFFERS"
    assert verdicts(check(page(), occupancy_pct=40))["occupancy"] == "DIFFERS"


def test_what_computes_is_compared_at_equal_clocks(check):
    for bound, verdict in (("compute: bf16", "agrees"), ("memory", "DIFFERS")):  # 10 % fewer cycles a second, 11 % longer
        assert verdicts(check(page(us=113, mhz="1,620,000,000"), bound=bound))["time"] == verdict


def test_what_cannot_be_judged_is_not(check):
    result = check(page(us=20), kind="baseline", dram_read_bytes="", dram_write_bytes="", counter_status="no_permission")
    assert result[0] == 2 and "nothing could be judged" in result[1] and set(verdicts(result).values()) == {"-"}


@pytest.mark.parametrize("text, says", [
    ("no report\n", "is not ncu's raw page"), (page(unit="fortnight"), "is not ncu's raw page"), (page(range_=""), "one NVTX range"),
    (page(range_=":gemm/m=8,n=8,k=8/bf16/other:"), "no row of gemm/m=8,n=8,k=8/bf16/other"),
], ids=["text", "unit", "range", "case"])
def test_other_reports_are_refused(check, text, says):
    code, said = check(text)
    assert code == 2 and says in said, said


def test_rows_are_taken_evenly_over_their_times():
    rows = tool.pd.DataFrame([{"op": "gemm", "variant": variant, "time_cold_us": us} for us in range(1, 100) for variant in ("torch_eager", "ptx")])
    assert list(tool.evenly(rows, 4)["time_cold_us"]) == [20, 40, 60, 80]
    with pytest.raises(tool.Refused, match="80 rows"):
        tool.evenly(rows, 81)


def test_rows_are_timed_again_by_another_loop(monkeypatch, tmp_path):
    """With PyTorch's cases on the CPU, and clocks that are known."""
    torch = pytest.importorskip("torch")
    from baselines.pytorch import worker

    times = iter([(30.0, 30.5), (30.0, 40.0)])

    class Loop:
        def __init__(self, *_):
            pass

        def times(self, launch):
            [y] = launch()
            assert y.shape == (3, 8)
            return next(times)

    tensors = [{"name": name, "shape": [3, 8], "dtype": "fp32", "role": role} for name, role in (("x", "in"), ("y", "out"))]
    record = {"op": "layernorm", "problem": "rows=3,channels=8", "fields": {"channels": 8, "images": 1, "eps": 1e-5}, "dtypes": {"fp32": {}}, "filled": {},
              "normal": {"x": [0, 1]}, "tensors": tensors}
    write_run(tmp_path, *({"op": record["op"], "problem": record["problem"], "dtype": dtype, "variant": "torch_eager", "time_cold_us": us}
                          for dtype, us in (("fp32", 30), ("bf16", 31))))
    monkeypatch.setattr(worker, "open_device", lambda _: torch.device("cpu"))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(tool, "Loop", Loop)
    monkeypatch.setattr(tool, "problem_records", lambda _: {(record["op"], record["problem"]): record})
    options = SimpleNamespace(run=tmp_path, most=2, device=0, flush="read")
    assert tool.against_a_loop(options) == [True, False]


def test_most_has_a_range(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["crosscheck", "loop", "run", "--most", "0"])
    assert tool.main() == 2 and "1 to 10,000" in capsys.readouterr().err
