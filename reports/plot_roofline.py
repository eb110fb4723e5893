"""Draws the roofline of a run: python3 reports/plot_roofline.py RUN_DIR [--out FILE.png|.svg] [--dtype bf16]

One panel per op: arithmetic intensity against achieved rate, the measured ceilings as lines, and every verified row as a point,
coloured by kind. Reads roofline.csv and ceilings.csv (written by `noisefloor roofline RUN_DIR`).
"""

import argparse
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

# One colour a kind, from Okabe and Ito's palette, which colour-blind readers tell apart.
COLOURS = {
    "host": "#999999",
    "naive": "#999999",
    "tiled": "#56B4E9",
    "tensor_core": "#009E73",
    "ptx": "#D55E00",
    "baseline": "#0072B2",
}
MARKERS = {"baseline": "s"}


def read_run(folder: Path) -> tuple[pd.DataFrame, dict[str, float], str]:
    for name in ("roofline.csv", "ceilings.csv"):
        if not (folder / name).is_file():
            raise SystemExit(f"{folder / name}: not there; run `noisefloor roofline {folder}` first")
    rows = pd.read_csv(folder / "roofline.csv")
    rows = rows[rows["status"] == "ok"]
    if rows.empty:
        raise SystemExit(f"{folder / 'roofline.csv'}: no row is ok, nothing to draw")
    ceilings = pd.read_csv(folder / "ceilings.csv")
    return rows, dict(zip(ceilings["name"], ceilings["value"])), rows["device"].iloc[0]


def draw_op(axes, rows: pd.DataFrame, ceilings: dict[str, float], op: str) -> None:
    memory = ceilings["dram_copy"]
    roofs = sorted(rows["bound"].str.split(":").str[1].dropna().unique())
    # Wide enough that every ridge, where bandwidth meets arithmetic, is in the picture.
    ridge = max(ceilings[name] for name in roofs) / memory
    intensity = np.geomspace(rows["ai"].min() / 2, 4 * max(ridge, rows["ai"].max()), 300)
    for name in roofs:
        axes.plot(intensity, np.minimum(intensity * memory, ceilings[name]), color="black", linewidth=1.2, zorder=1)
        axes.annotate(f"{name}: {ceilings[name] / 1e3:.3g} TFLOP/s", (intensity[-1], ceilings[name]), xytext=(0, 3),
                      textcoords="offset points", ha="right", fontsize=7)
    for kind, colour in COLOURS.items():
        points = rows[rows["kind"] == kind]
        if not points.empty:
            axes.scatter(points["ai"], points["gflops"], s=16, alpha=0.6, color=colour, marker=MARKERS.get(kind, "o"),
                         label=kind, linewidths=0, zorder=2)
    axes.set(xscale="log", yscale="log", title=op, xlabel="FLOP per compulsory byte")
    axes.grid(True, which="major", linewidth=0.3)
    axes.legend(fontsize=7, loc="lower right", frameon=False)


def main() -> int:
    parser = argparse.ArgumentParser(description="Draw the roofline of a run")
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--out", type=Path, help="PNG or SVG (default: RUN_DIR/roofline.png)")
    parser.add_argument("--dtype", default="bf16")
    arguments = parser.parse_args()
    rows, ceilings, device = read_run(arguments.run_dir)
    rows = rows[rows["dtype"] == arguments.dtype]
    if rows.empty:
        print(f"no row has dtype {arguments.dtype}", file=sys.stderr)
        return 2
    ops = list(dict.fromkeys(rows["op"]))
    figure, panels = plt.subplots(1, len(ops), figsize=(4.2 * len(ops), 3.8), squeeze=False)
    for axes, op in zip(panels[0], ops):
        draw_op(axes, rows[rows["op"] == op], ceilings, op)
    panels[0][0].set_ylabel("GFLOP/s")
    figure.suptitle(f"{device}, {arguments.dtype}, cold: {len(rows)} verified rows under measured ceilings "
                    f"(copy {ceilings['dram_copy'] / 1e3:.3g} TB/s)", fontsize=10)
    figure.tight_layout()
    out = arguments.out or arguments.run_dir / "roofline.png"
    figure.savefig(out, dpi=150)
    print(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
