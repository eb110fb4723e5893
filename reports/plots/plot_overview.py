"""Draws the front page's picture: python3 reports/plots/plot_overview.py RUN_DIR [--out FILE.png|.svg] [--theme dark]

Above: whole networks, a bar for ours, the libraries', the fastest of both and torch.compile; shorter is faster. Below, where there are rows of ops: one
roofline of all: the fastest own variant and the fastest baseline of each problem, under the measured ceilings. RUN_DIR needs rows of whole networks.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from reports.plots.plot_roofline import STYLE, Theme, bar_panel, draw_ceilings, file_to_write, label_diagonals, rate_text, read_run, refuse, save, time_text, title  # noqa: E402
from reports.docs.write_docs import PLANS, network_times  # noqa: E402

import matplotlib.pyplot as plt  # noqa: E402  # behind plot_roofline, which says where it is

BARS = {"plan_own": ("ours", "ptx"), "plan_baseline": ("libraries", "baseline"), "plan_fastest": ("fastest of both", "network"),
        "torch_compile": ("torch.compile", "host")}
MOST_COLUMNS = 3
PANEL_INCHES, ROOFLINE_INCHES, TITLE_INCHES = (3.6, 1.0), 4.6, 0.3  # a panel has four bars and a title; a page of READMEs is some ten inches wide
ROOF_PIPES = ["tensor_bf16", "fma_fp32"]


def title_of(problem: str) -> str:
    fields = dict(field.split("=") for field in problem.split(","))
    return f"{fields['name']}, batch {fields['batch']}"


def draw_networks(panels, networks, theme: Theme) -> None:
    for axes, (problem, rows) in zip(panels, networks):
        bars = [(BARS[variant], rows.get(variant)) for variant in PLANS if variant in BARS]
        times = [float(row["time_cold_us"]) if row else 0.0 for _, row in bars]
        bar_panel(axes, title_of(problem), [name for (name, _), _ in bars], [time / max(times) for time in times],
                  [time_text(time) if time else "no time" for time in times],
                  [theme.kinds[kind]["colour"] for (_, kind), _ in bars], theme)


def draw_best(axes, rows, ceilings, theme: Theme) -> None:
    span = (rows["ai"].min() / 2, 2 * rows["ai"].max())
    draw_ceilings(axes, ceilings, ROOF_PIPES, "value", span, theme.surface["roof"], False)
    for kind, of_kind, label in (("baseline", rows[rows["kind"] == "baseline"], "the fastest baseline"),
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


def main() -> int:
    plt.switch_backend("Agg")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--out", type=Path, help="PNG or SVG (default: RUN_DIR/overview.png)")
    parser.add_argument("--theme", choices=list(STYLE["surface"]), default="light")
    arguments = parser.parse_args()
    out = file_to_write(arguments.out) if arguments.out else None  # the run's own folder is looked at with the run
    rows, ceilings = read_run(arguments.run_dir, "bf16")
    theme = Theme(arguments.theme)
    networks = [(problem, of_it) for problem, of_it in network_times(arguments.run_dir) if BARS.keys() & of_it.keys()]
    if not networks:
        raise refuse(f"{arguments.run_dir}: has no row of a whole network in bf16 that is ok, PyTorch's eager one aside")
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
    figure.suptitle(title(rows, "bf16", f"{what}(shorter is faster)"), fontsize=10, x=0.01, ha="left")
    figure.tight_layout(rect=(0, 0, 1, 1 - TITLE_INCHES / figure.get_figheight()))
    for axes in figure.axes:
        label_diagonals(axes, theme)
    save(figure, out or file_to_write(arguments.run_dir / "overview.png"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
