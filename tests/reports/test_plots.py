"""Reports without a browser: what `noisefloor roofline` refuses, what an interrupted sweep leaves, and the plots for READMEs."""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import matplotlib.pyplot as plt
import pytest

from reports.plots import draw_corruption, plot_loss, plot_roofline
from tests.cli.program import PROGRAM, needs_program, read_table, run

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "reports" / "recorded" / "nvidia-h200"


def script(main, *arguments):
    """What a script says, in this process: each of its own would import matplotlib anew."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            code = main(list(map(str, arguments)))
        except SystemExit as end:
            code = end.code
    plt.close("all")
    return SimpleNamespace(returncode=code, stdout=out.getvalue(), stderr=errors.getvalue())


def plot(*arguments):
    return script(plot_roofline.main, *arguments)


def corruption(*arguments):
    return script(draw_corruption.main, *arguments)


@needs_program
@pytest.mark.parametrize("rows, plotly, says", [
    (0, "", "the sweep has no rows"),
    (1, "nowhere/plotly.min.js", "nowhere/plotly.min.js: cannot be read"),
    (1, __file__, "is not plotly.min.js"),
])
def test_roofline_refuses_and_writes_nothing(rows, plotly, says, tmp_path):
    lines = (RECORDED / "sweep.csv").read_text().splitlines(keepends=True)
    (tmp_path / "sweep.csv").write_text("".join(lines[: rows + 1]))
    (tmp_path / "ceilings.csv").write_text((RECORDED / "ceilings.csv").read_text())
    result = run("roofline", tmp_path, env={**os.environ, "NOISEFLOOR_PLOTLY": plotly})
    assert result.returncode == 2 and says in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ceilings.csv", "sweep.csv"]


@needs_program
def test_a_sweep_cut_by_its_budget_names_the_cases_it_lacks(tmp_path):
    problems = tmp_path / "problems"
    problems.mkdir()
    (problems / "gemm.csv").write_text("network,m,n,k,count\n" + "".join(f"mini,{m},16,24,1\n" for m in range(8, 40)))
    out = tmp_path / "run"
    command = ("sweep", "--device", "host", "--problems", problems, "--networks", "all", "--out", out)
    assert run(*command, "--budget", "0.01").returncode == 0
    chosen = {tuple(row.values()) for row in read_table(out / "cases.csv")}
    there = {(row["op"], row["dtype"], row["problem"], row["variant"]) for row in read_table(out / "sweep.csv")}
    assert there < chosen and len(chosen) == 32
    result = run("report", out)  # the command's other name
    assert result.returncode == 0, result.stderr
    data = json.loads(re.search(r'id="data">(.*?)</script>', (out / "report.html").read_text(), re.S).group(1))
    assert f"{32 - len(there)} of the 32 cases" in data["lacks"][0]["text"] and data["lacks"][0]["urgent"]
    assert data["without_row"]["count"] == 32 - len(there)


def part_of_the_record(folder, keep):
    """Its ceilings, and rows whose lines are kept."""
    (folder / "ceilings.csv").write_text((RECORDED / "ceilings.csv").read_text())
    head, *lines = (RECORDED / "sweep.csv").read_text().splitlines(keepends=True)
    (folder / "sweep.csv").write_text("".join([head, *filter(keep, lines)]))
    return folder


def of_a_network(line):
    return line.startswith("network,")


@pytest.mark.parametrize("kind, keep, has, lacks", [
    ("roofline", lambda line: True, ("gemm", "groupnorm", "sampler_step"), "witchcraft"),
    ("overview", lambda line: True, ("adm64, batch 32", "torch.compile", "our fastest variant"), "no time"),
    ("overview", of_a_network, ("adm64, batch 32",), "our fastest variant"),
    ("overview", lambda line: not line.startswith("network,torch_compile,") or "sd15" not in line, ("our fastest variant", "no time"), "witchcraft"),
])
def test_plots_hold_the_runs_texts(kind, keep, has, lacks, tmp_path):
    folder = part_of_the_record(tmp_path, keep)
    result = plot(folder, "--plot", kind, "--out", tmp_path / "p.svg", "--theme", "dark")
    assert result.returncode == 0, result.stderr
    text = (tmp_path / "p.svg").read_text()
    style = json.loads((ROOT / "reports" / "page" / "style.json").read_text())
    assert all(word in text for word in ("NVIDIA H200", style["surface"]["dark"]["paper"], style["kinds"]["baseline"]["dark"], *has)) and lacks not in text
    if kind == "roofline":
        assert plot(folder).returncode == 0 and (tmp_path / "roofline.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("arguments, says", [
    (["nowhere"], "not there; give the folder of a run"),
    ([RECORDED, "--dtype", "fp64"], "no row of dtype fp64"),
    ([RECORDED, "--out", "p.gif"], "neither .png nor .svg"),
    ([RECORDED, "--plot", "pie"], "invalid choice"),
    ([RECORDED, "--plot", "totals"], "report.html"),
])
def test_plots_refuse(arguments, says):
    result = plot(*arguments)
    assert result.returncode == 2 and says in result.stderr


@pytest.mark.parametrize("keep", [lambda line: not of_a_network(line), lambda line: not of_a_network(line) or line.startswith("network,torch_eager,")])
def test_the_overview_needs_whole_networks(keep, tmp_path):
    result = plot(part_of_the_record(tmp_path, keep), "--plot", "overview")
    assert result.returncode == 2 and "no row of a whole network" in result.stderr and not (tmp_path / "overview.png").exists()


@pytest.mark.parametrize("file, change, says", [
    ("sweep.csv", lambda file: file.write_text(""), "sweep.csv: cannot be read: No columns"),
    ("sweep.csv", lambda file: file.write_text('op,"variant\n1,2,3\n'), "sweep.csv: "),
    ("sweep.csv", lambda file: file.write_text(re.sub(r"memory:[a-z0-9_]+", "memory:tensor_x", file.read_text())), "no ceiling tensor_x"),
    ("sweep.csv", lambda file: file.write_text(file.read_text().replace(",ptx,", ",witchcraft,")), "no kind of"),
    ("sweep.csv", lambda file: (file.unlink(), os.mkfifo(file)), "sweep.csv: not there"),
    ("ceilings.csv", lambda file: file.write_text(re.sub(r"dram_copy,[^,]*", "dram_copy,-1", file.read_text())), "is not a number above 0"),
])
def test_plots_refuse_damaged_runs_in_a_line(file, change, says, tmp_path):
    change(part_of_the_record(tmp_path, lambda line: True) / file)
    result = plot(tmp_path)
    assert result.returncode == 2 and says in result.stderr, result.stderr
    assert not (tmp_path / "roofline.png").exists()


def test_plots_say_what_they_need(tmp_path):
    result = subprocess.run([sys.executable, "-S", ROOT / "reports/plots/plot_roofline.py", RECORDED], capture_output=True, text=True, cwd=tmp_path)
    says = "plot_roofline.py: error: No module named 'matplotlib'; .venv/bin/python3 has it"  # -S: without site-packages
    assert result.returncode == 2 and says in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize("out, more, says", [
    ("x" * 250 + ".png", [], "cannot be written: File name too long"),
    ("c.txt", [], "none of .png, .svg, .pdf"),
    ("c.png", [], "--noisefloor"),
    *(("c.png", ["--digits", digits], f"--digits is {digits}, not an even number from 4") for digits in ("2", "5", "-4")),
])
def test_corruption_refuses_before_it_draws(tmp_path, out, more, says):
    refused = corruption("--noisefloor", tmp_path / "none", "--out", tmp_path / out, *more)
    assert refused.returncode == 2 and says in refused.stderr, refused.stderr
    assert not any(tmp_path.iterdir())


@needs_program
def test_corruption_is_drawn(tmp_path):
    drawn = subprocess.run([sys.executable, ROOT / "reports" / "plots" / "draw_corruption.py", "--noisefloor", PROGRAM, "--device", "host", "--digits", "4", "--out",
                            tmp_path / "corruption.png"], capture_output=True, text=True, timeout=300)
    assert drawn.returncode == 0, drawn.stderr
    assert re.search(r"ddpm 1000 steps [0-9.]+ s for 4 digits, ddim 50 steps [0-9.]+ s", drawn.stdout)
    assert (tmp_path / "corruption.png").read_bytes().startswith(b"\x89PNG")


def test_losses_are_drawn(tmp_path):
    losses = tmp_path / "losses.csv"
    losses.write_text("step,loss,gradient_norm,rate\n1,2.5,3.5,1e-3\n2,1.5,2.5,1e-3\n3,nan,inf,1e-3\n")
    result = script(plot_loss.main, losses, "--out", tmp_path / "loss.png")
    assert result.returncode == 0 and (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG"), result.stderr
    for text, says in (("step,loss\n1,2\n", "gradient_norm"), ("step,loss,gradient_norm\n", "no rows"), ("", "columns")):
        losses.write_text(text)
        result = script(plot_loss.main, losses, "--out", tmp_path / "other.png")
        assert result.returncode == 2 and says in result.stderr, result.stderr
    assert script(plot_loss.main, losses, "--out", tmp_path / "loss.txt").returncode == 2
