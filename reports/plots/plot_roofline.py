"""Draws a run for a README: python3 reports/plots/plot_roofline.py RUN_DIR [--plot roofline|overview] [--out FILE.png|.svg] [--theme dark]

Pictures standing still, in the colours of report.html (reports/page/style.json), from sweep.csv and ceilings.csv.
  roofline    a panel an op: intensity against rate under measured (solid) and datasheet (dashed) ceilings, a mark a verified row
  overview    the front page's. Above: whole networks, a bar for ours, the libraries', the fastest of both and torch.compile; shorter is faster. Below,
              where there are rows of ops: one roofline of all, the fastest own variant and baseline of each problem. It needs rows of whole networks.
"""

import argparse
import io
import json
import sys
from pathlib import Path

try:
    import matplotlib.pyplot as plt
    import numpy as np
    import pandas as pd
except ImportError as error:
    if not Path(sys.argv[0]).stem.startswith("plot_"):  # imported: the caller says it
        raise
    print(f"{Path(sys.argv[0]).name}: error: {error}; .venv/bin/python3 has it, where scripts/setup made it", file=sys.stderr)
    sys.exit(2)

STYLE = json.loads((Path(__file__).resolve().parents[1] / "page" / "style.json").read_text())
ROOFLINES_A_ROW = 5
TITLE_LENGTH = 46  # letters that fit above a panel of bars
BARS = {"plan_own": ("ours", "ptx"), "plan_baseline": ("libraries", "baseline"), "plan_fastest": ("fastest of both", "network"),
        "torch_compile": ("torch.compile", "host")}
MOST_COLUMNS = 3
PANEL_INCHES, ROOFLINE_INCHES, TITLE_INCHES = (3.6, 1.0), 4.6, 0.3  # a panel has four bars and a title; a page of READMEs is some ten inches wide
ROOF_PIPES = ["tensor_bf16", "fma_fp32"]
CEILING_LABELS = {"dram_copy": "DRAM", "l2": "L2", "fma_fp32": "fp32 FMA"}
PREFIXES = "GTP"
MOST_BYTES = 1 << 30


class Theme:
    def __init__(self, name: str):
        self.surface = STYLE["surface"][name]
        self.kinds = {kind: {**look, "colour": look[name]} for kind, look in STYLE["kinds"].items()}
        ink, muted = self.surface["ink"], self.surface["muted"]
        plt.rcParams.update({
            "figure.facecolor": self.surface["paper"], "axes.facecolor": self.surface["paper"], "savefig.facecolor": self.surface["paper"],
            "text.color": ink, "axes.labelcolor": muted, "xtick.color": muted, "ytick.color": muted, "axes.edgecolor": self.surface["line"],
            "grid.color": self.surface["grid"], "font.size": 9, "axes.titlesize": 10.5, "axes.titleweight": "bold", "axes.titlelocation": "left",
            "axes.spines.top": False, "axes.spines.right": False, "svg.fonttype": "none", "svg.hashsalt": "noisefloor",
        })


def refuse(message: str) -> SystemExit:
    print(message, file=sys.stderr)
    return SystemExit(2)


def read_table(file: Path, needed: list[str], numbers: list[str]) -> pd.DataFrame:
    """A CSV file of ours, checked as far as drawing needs it."""
    if not file.is_file():
        raise refuse(f"{file}: not there, or not a regular file")
    if file.stat().st_size > MOST_BYTES:
        raise refuse(f"{file}: has {file.stat().st_size} bytes, and at most {MOST_BYTES} are read")
    try:
        table = pd.read_csv(file, low_memory=False)  # a column has one kind, whatever its length
    except (ValueError, OSError) as error:  # ParserError, EmptyDataError and UnicodeDecodeError are ValueErrors
        raise refuse(f"{file}: cannot be read: {error}") from None
    for name in needed + numbers:
        if name not in table.columns:
            raise refuse(f"{file}: no column '{name}'")
    for name in numbers:
        table[name] = pd.to_numeric(table[name], errors="coerce")
    return table


def read_run(folder: Path, dtype: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    if not (folder / "sweep.csv").is_file():
        raise refuse(f"{folder / 'sweep.csv'}: not there; give the folder of a run")
    rows = read_table(folder / "sweep.csv", ["op", "variant", "kind", "dtype", "problem", "status", "device", "bound", "commit"], ["time_cold_us", "flops", "ai"])
    rows["commit"] = rows["commit"].astype(str)
    ok = rows[(rows["status"] == "ok") & (rows["dtype"] == dtype)]
    if ok.empty:
        raise refuse(f"{folder / 'sweep.csv'}: no row of dtype {dtype} is ok, nothing to draw")
    wrong = ok[~(ok["time_cold_us"] > 0) | ~np.isfinite(ok["time_cold_us"]) | ~ok["kind"].isin(STYLE["kinds"])]
    if not wrong.empty:
        first = wrong.iloc[0]
        raise refuse(f"{folder / 'sweep.csv'}: the row of {first['op']}/{first['problem']}/{first['dtype']}/{first['variant']} has no time above 0, or no "
                     f"kind of {', '.join(STYLE['kinds'])}")
    ceilings = read_table(folder / "ceilings.csv", ["name"], ["value", "datasheet"]).set_index("name")
    if not ceilings.index.is_unique or not (ceilings["value"] > 0).all() or not np.isfinite(ceilings["value"]).all():
        raise refuse(f"{folder / 'ceilings.csv'}: a ceiling is there twice, or is not a number above 0")
    lacking = {"dram_copy", *ceilings_of(ok)} - set(ceilings.index)
    if lacking:
        raise refuse(f"{folder / 'ceilings.csv'}: no ceiling {', '.join(sorted(lacking))}")
    return ok, ceilings


def ceilings_of(rows: pd.DataFrame) -> list[str]:
    """The ceilings of arithmetic that rows are held to: what the column `bound` has behind its colon."""
    return sorted({str(bound).partition(":")[2] for bound in rows["bound"]} - {""})


def title(rows: pd.DataFrame, dtype: str, caption: str) -> str:
    return f"{rows['device'].iloc[0]}, {dtype}, cold, commit {', '.join(rows['commit'].unique())}: {caption}"


def rate_text(value: float, unit: str) -> str:
    step = min(int(np.log10(value) // 3), len(PREFIXES) - 1)
    return f"{float(f'{value / 1000**step:.3g}'):g} {PREFIXES[step]}{unit[1:]}"


def draw_ceilings(axes, ceilings: pd.DataFrame, pipes: list[str], column: str, span: tuple[float, float], colour: str, dashed: bool) -> None:
    memories = [name for name in ("dram_copy", "l2") if name in ceilings.index and ceilings[column].get(name, 0) > 0]
    rates = {name: ceilings[column][name] for name in pipes if ceilings[column].get(name, 0) > 0}
    line = {"color": colour, "linewidth": 0.8 if dashed else 1.2, "linestyle": (0, (4, 3)) if dashed else "-", "zorder": 1}
    for name in memories:
        bandwidth = ceilings[column][name]
        end = min(span[1], max(rates.values(), default=span[1] * bandwidth) / bandwidth)
        axes.plot([span[0], end], [span[0] * bandwidth, end * bandwidth], **line)
        if not dashed:
            axes.diagonals = [*getattr(axes, "diagonals", []), (name, bandwidth, (span[0], end))]
    fastest = max((ceilings[column][name] for name in memories), default=None)
    for name, rate in rates.items():
        axes.plot([max(span[0], rate / fastest) if fastest else span[0], span[1]], [rate, rate], **line)
        if not dashed:
            label = CEILING_LABELS.get(name, name.replace("_", " "))
            axes.annotate(f"{label} {rate_text(rate, 'GFLOP/s')}", (span[1], rate), xytext=(0, 4), textcoords="offset points", ha="right", fontsize=7,
                          color=colour)


def label_diagonals(axes, theme: Theme) -> None:
    """Along their lines, whose angle is known once the figure is laid out: L2's at the upper end, DRAM's at the lower."""
    for name, bandwidth, (begin, end) in getattr(axes, "diagonals", []):
        x = begin * (end / begin) ** (0.72 if name == "l2" else 0.3)
        (left, low), (right, high) = axes.transData.transform([(x, x * bandwidth), (2 * x, 2 * x * bandwidth)])
        axes.annotate(f"{CEILING_LABELS[name]} {rate_text(bandwidth, 'GB/s')}", (x, x * bandwidth), xytext=(-2, 3), textcoords="offset points",
                      rotation=np.degrees(np.arctan2(high - low, right - left)), rotation_mode="anchor", ha="center", fontsize=7,
                      color=theme.surface["roof"])


def draw_roofline(rows: pd.DataFrame, ceilings: pd.DataFrame, theme: Theme, _folder: Path):
    rows = rows[(rows["flops"] > 0) & (rows["ai"] > 0)]
    if rows.empty:
        raise refuse("no row has flops and an intensity, so that there is nothing to place under a roof")
    ops = list(dict.fromkeys(rows["op"]))
    columns = min(len(ops), ROOFLINES_A_ROW)
    depth = -(-len(ops) // columns)
    figure, panels = plt.subplots(depth, columns, figsize=(4.1 * columns, 3.9 * depth), squeeze=False)
    for axes in panels.flat[len(ops):]:
        axes.axis("off")
    for axes, op in zip(panels.flat, ops):
        points = rows[rows["op"] == op]
        pipes = ceilings_of(points)
        ridge = max((ceilings["value"][name] for name in pipes), default=0) / ceilings["value"]["dram_copy"]
        span = (points["ai"].min() / 2, 4 * max(ridge, points["ai"].max()))  # every ridge is in the picture
        draw_ceilings(axes, ceilings, pipes, "datasheet", span, theme.surface["datasheet"], True)
        draw_ceilings(axes, ceilings, pipes, "value", span, theme.surface["roof"], False)
        for kind, look in theme.kinds.items():
            of_kind = points[points["kind"] == kind]
            open_mark = kind == "naive"
            axes.scatter(of_kind["ai"], of_kind["flops"] / of_kind["time_cold_us"] * 1e-3, s=15, alpha=0.8, marker=look["matplotlib"], zorder=2,
                         facecolors="none" if open_mark else look["colour"], edgecolors=look["colour"], linewidths=0.9 if open_mark else 0,
                         label=look["label"] if not of_kind.empty else "_")
        axes.set(xscale="log", yscale="log", title=op, xlabel="FLOP per compulsory byte")
        axes.yaxis.set_major_formatter(lambda value, _: rate_text(value, "G").rstrip() if value >= 1 else f"{value:g} G")
        axes.grid(True, which="major", linewidth=0.5)
        axes.minorticks_off()  # drawing them takes half of the time
    for axes in panels[:, 0]:
        axes.set_ylabel("FLOP/s")
    kinds = dict(sum((list(zip(*reversed(axes.get_legend_handles_labels()))) for axes in panels.flat), []))
    figure.legend(kinds.values(), kinds.keys(), loc="lower center", ncols=len(kinds), fontsize=8, frameon=False, handletextpad=0.2)
    return figure, "measured ceilings solid, datasheet dashed", (0, 0.06 / depth, 1, 1)


def time_text(microseconds: float) -> str:
    return f"{microseconds:,.0f} µs" if microseconds >= 1000 else f"{microseconds:.4g} µs"


def bar_panel(axes, title: str, labels: list[str], lengths: list[float], values: list[str], colours: list[str], theme: Theme) -> None:
    places = -np.arange(len(labels))
    axes.barh(places, lengths, height=0.72, color=colours)
    axes.set_ylim(min(-3, places[-1]) - 0.5, 0.5)  # bars of one thickness, whatever their number
    for place, value in zip(places, values):
        axes.text(1.03, place, value, va="center", ha="left", fontsize=7.5, color=theme.surface["ink"])
    axes.set_yticks(places, labels, fontsize=7.5)
    axes.set_xlim(0, 1.36)
    axes.set_xticks([])
    axes.tick_params(left=False)
    axes.spines[["bottom", "left"]].set_visible(False)
    axes.set_title(title if len(title) <= TITLE_LENGTH else title[: TITLE_LENGTH - 1] + "…", fontsize=8)


def title_of(problem: str) -> str:
    fields = dict(field.split("=") for field in problem.split(","))
    return f"{fields['name']}, batch {fields['batch']}"


def draw_networks(panels, networks, theme: Theme) -> None:
    for axes, (problem, rows) in zip(panels, networks):
        bars = [(BARS[variant], rows.get(variant)) for variant in BARS]
        times = [float(row["time_cold_us"]) if row else 0.0 for _, row in bars]
        bar_panel(axes, title_of(problem), [name for (name, _), _ in bars], [time / max(times) for time in times],
                  [time_text(time) if time else "no time" for time in times],
                  [theme.kinds[kind]["colour"] for (_, kind), _ in bars], theme)


def draw_best(axes, rows, ceilings, theme: Theme) -> None:
    span = (rows["ai"].min() / 2, 2 * rows["ai"].max())
    draw_ceilings(axes, ceilings, ROOF_PIPES, "value", span, theme.surface["roof"], False)
    exact = rows[rows["lossy"].isna()] if "lossy" in rows else rows
    for kind, of_kind, label in (("baseline", exact[exact["kind"] == "baseline"], "the fastest baseline"),
                                 ("ptx", rows[rows["kind"] != "baseline"], "our fastest variant")):
        best = of_kind.loc[of_kind.groupby(["op", "problem"])["time_cold_us"].idxmin()]
        look = theme.kinds[kind]
        axes.scatter(best["ai"], best["flops"] / best["time_cold_us"] * 1e-3, s=11, alpha=0.75, marker=look["matplotlib"], color=look["colour"],
                     linewidths=0, label=label, zorder=2)
    axes.set_title("every problem, under the measured ceilings", fontsize=8)
    axes.set(xscale="log", yscale="log", xlabel="FLOP per compulsory byte", ylabel="FLOP/s")
    axes.yaxis.set_major_formatter(lambda value, _: rate_text(value, "G").rstrip() if value >= 1 else f"{value:g} G")
    axes.grid(True, which="major", linewidth=0.5)
    axes.legend(fontsize=8, frameon=False, loc="lower right")


def draw_overview(rows: pd.DataFrame, ceilings: pd.DataFrame, theme: Theme, folder: Path):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from reports.docs.write_docs import network_times

    networks = [(problem, of_it) for problem, of_it in network_times(folder) if BARS.keys() & of_it.keys()]
    if not networks:
        raise refuse(f"{folder}: has no row of a whole network in bf16 that is ok, PyTorch's eager one aside")
    of_ops = rows[(rows["flops"] > 0) & (rows["kind"] != "network") & (rows["op"] != "network")]
    both = len(of_ops) > 0
    columns = min(MOST_COLUMNS, len(networks))
    lines = -(-len(networks) // columns)
    heights = [PANEL_INCHES[1]] * lines + [ROOFLINE_INCHES] * both
    figure = plt.figure(figsize=(PANEL_INCHES[0] * (MOST_COLUMNS if both else columns), sum(heights) + TITLE_INCHES))
    grid = figure.add_gridspec(len(heights), columns, height_ratios=heights)
    draw_networks([figure.add_subplot(grid[number // columns, number % columns]) for number in range(len(networks))], networks, theme)
    if both:
        draw_best(figure.add_subplot(grid[lines, :]), of_ops, ceilings, theme)
    what = "the roofline. Above, each by its own: one call of a network " if both else "one call of a network\n"
    return figure, f"{what}(shorter is faster)", (0, 0, 1, 1 - TITLE_INCHES / figure.get_figheight())


def file_to_write(out: Path):
    from baselines.pytorch.output_file import OutputFile

    if out.suffix not in (".png", ".svg"):
        raise refuse(f"--out: {out} is neither .png nor .svg")
    return OutputFile(out)


def save(figure, out) -> None:
    kind = Path(out.name).suffix[1:]
    out.write(lambda part: figure.savefig(part, format=kind, dpi=130, metadata={"Date": None} if kind == "svg" else {}))
    print(out.name, file=out.words)


PLOTS = {"roofline": draw_roofline, "overview": draw_overview}


def draw(plot: str, rows: pd.DataFrame, ceilings: pd.DataFrame, theme_name: str, folder: Path, dtype: str):
    theme = Theme(theme_name)
    figure, caption, place = PLOTS[plot](rows, ceilings, theme, folder)
    figure.suptitle(title(rows, dtype, caption), fontsize=10, x=0.01, ha="left")
    figure.tight_layout(rect=place)
    for axes in figure.axes:
        label_diagonals(axes, theme)
    return figure


def svg(rows: pd.DataFrame, ceilings: pd.DataFrame, theme_name: str, dtype: str) -> str:
    """A roofline for a notebook (noisefloor.load), whose own plots keep their look, and do not show this one twice."""
    text = io.StringIO()
    with plt.rc_context():
        figure = draw("roofline", rows, ceilings, theme_name, Path(), dtype)
        figure.savefig(text, format="svg", metadata={"Date": None})
        plt.close(figure)
    return text.getvalue()[text.getvalue().index("<svg"):]


def plot_of(name: str) -> str:
    if name in ("baselines", "totals"):
        raise argparse.ArgumentTypeError(f"{name} was removed: it is in report.html, which noisefloor roofline RUN_DIR writes")
    return name


def plot(arguments) -> None:
    out = file_to_write(arguments.out) if arguments.out else None  # the run's own folder is looked at with the run
    rows, ceilings = read_run(arguments.run_dir, arguments.dtype)
    save(draw(arguments.plot, rows, ceilings, arguments.theme, arguments.run_dir, arguments.dtype), out or file_to_write(arguments.run_dir / f"{arguments.plot}.png"))


def main(argv=None) -> int:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from baselines.pytorch.output_file import exit_code  # which the installed package, where nothing is written, does not have

    plt.switch_backend("Agg")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--plot", choices=PLOTS, type=plot_of, default="roofline")
    parser.add_argument("--out", type=Path, help="PNG or SVG (default: RUN_DIR/PLOT.png)")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--theme", choices=list(STYLE["surface"]), default="light")
    return exit_code("plot_roofline", plot, parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
