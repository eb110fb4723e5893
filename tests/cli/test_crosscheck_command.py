"""A report of Nsight Compute's beside a row."""

from tests.cli.program import needs_program, rows, run, sweep

pytestmark = needs_program


NCU_HEADER = ('"ID","thread Domain:Push/Pop_Range:Msg","Kernel Name","dram__bytes_read.sum","dram__bytes_write.sum",'
              '"gpu__time_duration.sum","sm__warps_active.avg.pct_of_peak_sustained_active"\n"","","","byte","byte","ns","%"\n')


def test_crosscheck_puts_a_report_beside_a_row(problems, tmp_path):
    out = tmp_path / "run"
    assert sweep(problems, out, "--benchmark_filter=k=24").returncode == 0
    case = "gemm/m=8,n=16,k=24/bf16/host"
    report = tmp_path / "report.csv"

    def check(microseconds, *more, name=case):
        report.write_text(NCU_HEADER + f'"0","1 ""<default domain>:{case}:none"" ","f","1","2","{1000 * microseconds}","50"\n')
        return run("crosscheck", name, "--report", report, "--run", out, *more)

    [row] = rows(out)
    text = (out / "sweep.csv").read_text()
    (out / "sweep.csv").write_text(text.replace(f",{row['time_cold_us']},", ",100,", 1))
    agrees, differs, short = check(98), check(90), check(20)
    assert agrees.returncode == 0 and "+2.0 %" in agrees.stdout, agrees
    assert "SM clock, MHz" in agrees.stdout and "3 %, raw: " in agrees.stdout, agrees
    assert differs.returncode == 1 and "DIFFERS" in differs.stdout
    assert short.returncode == 2 and "nothing could be judged" in short.stderr and "not judged below 50 us" in short.stdout
    for result, says in (
        (check(98, name="gemm/m=8,n=16,k=24/bf16/ptx"), "no row of"),
        (check(98, "--device", "0"), "--device is for a row that is measured now"),
        (run("crosscheck", case, "--report", tmp_path / "none"), "cannot be read"),
        (run("crosscheck", case, "--report", report, "--run", tmp_path), "no sweep.csv"),
        (run("crosscheck", "gemm/m=8", "--report", report), "is not a case"),
        (run("crosscheck", case), "--report"),
    ):
        assert result.returncode == 2 and says in result.stderr, result
    report.write_text("no report\n")
    broken = run("crosscheck", case, "--report", report, "--run", out)
    assert broken.returncode == 2 and "report.csv:1: no column 'ID'" in broken.stderr
