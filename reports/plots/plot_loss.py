"""Draws the losses of a training (`noisefloor train --losses`): each step's, and their mean over some hundred steps; by it the norm of
the gradients.
"""

import argparse
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from baselines.pytorch.output_file import OutputFile, Refused, exit_code  # noqa: E402

COLUMNS = {"loss": "loss", "gradient_norm": "norm of the gradients"}


def read(file):
    try:
        rows = pd.read_csv(file)
    except (OSError, ValueError) as error:
        raise Refused(f"{file}: {error}") from None
    missing = {"step", *COLUMNS} - set(rows)
    if missing or rows.empty:
        raise Refused(f"{file}: is not the losses of a training: " + (f"no column {min(missing)}" if missing else "no rows"))
    return rows


def draw(file, kind, rows):
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    mean_of = max(1, min(100, len(rows) // 10))
    for axis, (column, name) in zip(axes, COLUMNS.items()):
        numbers = rows[column].where(np.isfinite(rows[column]))
        axis.plot(rows["step"], numbers, color="0.8", linewidth=0.6)
        axis.plot(rows["step"], numbers.rolling(mean_of, center=True).mean(), linewidth=1.4, label=f"mean of {mean_of} steps")
        axis.set(xlabel="step", ylabel=name, yscale="log")
        axis.legend(frameon=False)
    figure.savefig(file, format=kind, dpi=110)


def plot(arguments):
    kind = arguments.out.suffix.lower()[1:]
    if kind not in ("png", "svg", "pdf"):
        raise Refused(f"--out {arguments.out}: none of .png, .svg, .pdf")
    rows = read(arguments.losses)
    OutputFile(arguments.out).write(lambda part: draw(part, kind, rows))


def main(argv):
    parser = argparse.ArgumentParser(prog="plot_loss.py", description=__doc__)
    parser.add_argument("losses", type=Path, metavar="LOSSES.csv")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.png")
    return exit_code("plot_loss", plot, parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
