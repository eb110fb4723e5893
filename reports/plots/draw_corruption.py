"""Draws what diffusion does, and undoes: the forward process on a circle, a smiley and a digit (op q_sample), and digits drawn by DDPM in
1,000 steps beside DDIM in 50, with times (noisefloor sample).
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib
import numpy as np
from safetensors.numpy import load_file, save_file

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from baselines.pytorch.output_file import OutputFile, Refused, exit_code  # noqa: E402

SIZE = 32
TIMES = (0, 50, 100, 200, 300, 400, 600, 800, 999)
STEPS = {"ddpm": 1000, "ddim": 50}
FORMATS = (".png", ".svg", ".pdf")


def call(program, *arguments):
    try:
        result = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    except OSError as error:
        raise Refused(f"--noisefloor {program}: {error.strerror}") from error
    if result.returncode != 0:
        raise Refused(f"{program} {' '.join(map(str, arguments))}:\n{result.stderr.strip()}")
    return result.stdout


def circle():
    y, x = np.mgrid[:SIZE, :SIZE] - (SIZE - 1) / 2
    return np.where(np.abs(np.hypot(x, y) - 11) < 1.5, 1.0, -1.0)


def smiley():
    y, x = np.mgrid[:SIZE, :SIZE] - (SIZE - 1) / 2
    radius = np.hypot(x, y)
    face = np.where(radius < 14, 0.6, -1.0)
    eyes = (np.hypot(x - 5, y + 5) < 2) | (np.hypot(x + 5, y + 5) < 2)
    mouth = (np.abs(np.hypot(x, y - 1) - 8) < 1.2) & (y > 3)
    face[eyes | mouth] = -1
    return face


def levels():
    """alpha and sigma of Ho et al.'s linear schedule at TIMES; at 0 the image as it is."""
    alpha_bar = np.cumprod(1 - np.linspace(1e-4, 0.02, 1000))
    return [(1.0, 0.0) if t == 0 else (alpha_bar[t] ** 0.5, (1 - alpha_bar[t]) ** 0.5) for t in TIMES]


def main(argv):
    parser = argparse.ArgumentParser(prog="scripts/corruption", description=__doc__)
    parser.add_argument("--noisefloor", required=True, metavar="PATH", help="the program")
    parser.add_argument("--device", default="", help="as the program's --device")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--digits", type=int, default=20, metavar="N", help="drawn by each sampler, in two rows: an even number from 4 (default: 20)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.png")
    return exit_code("draw_corruption", corruption, parser.parse_args(argv))


def corruption(arguments):
    if arguments.digits < 4 or arguments.digits % 2 != 0:
        raise Refused(f"--digits is {arguments.digits}, not an even number from 4")
    kind = arguments.out.suffix.lower()
    if kind not in FORMATS:
        raise Refused(f"--out {arguments.out}: none of {', '.join(FORMATS)}")
    out = OutputFile(arguments.out)
    device = ("--device", arguments.device) if arguments.device else ()
    seed = ("--seed", arguments.seed)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sampled = {}
        for sampler, steps in STEPS.items():
            # All 1000 timesteps, also the nine whose levels lie above the network's training: there all is noise.
            said = call(arguments.noisefloor, "sample", "digits", "--sampler", f"{sampler},schedule=cosine,clamp=1,sigma_max=1e5",
                        "--steps", steps, "--count", arguments.digits, "--out", folder / "grid.png", "--tensor",
                        folder / f"{sampler}.safetensors", *seed, *device)
            took = re.search(r"steps: ([0-9.]+) s", said)
            if took is None:
                raise Refused(f"{arguments.noisefloor} sample no longer says how long it took: {said.strip()}")
            sampled[sampler] = (load_file(folder / f"{sampler}.safetensors")["images"][:, 0], float(took[1]))

        digit = np.kron(sampled["ddim"][0][3], np.ones((SIZE // 8, SIZE // 8)))
        pictures = [circle(), smiley(), digit]
        save_file({"x0": np.repeat(np.stack(pictures), len(TIMES), 0).reshape(-1, SIZE * SIZE).astype(np.float32),
                   "levels": np.array(levels() * len(pictures), np.float32)}, folder / "in.safetensors")
        call(arguments.noisefloor, "run", "q_sample", "--problem", f"noise=drawn,seed={arguments.seed}", "--counters", "off",
             "--input", folder / "in.safetensors", "--output", folder / "out.safetensors", *device)
        noisy = load_file(folder / "out.safetensors")["x_t"].reshape(len(pictures), len(TIMES), SIZE, SIZE)
    out.write(lambda part: draw(part, kind[1:], noisy, sampled))
    print(f"wrote {arguments.out}; " + ", ".join(f"{sampler} {STEPS[sampler]} steps {seconds:.2f} s for {arguments.digits} digits"
                                                 for sampler, (_, seconds) in sampled.items()), file=out.words)


def draw(file, kind, noisy, sampled):
    figure = plt.figure(figsize=(9, 4.9), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(3, 1))
    above.suptitle("Forward: x_t = alpha x0 + sigma noise, Ho et al.'s linear schedule", fontsize=10)
    for row, axes in enumerate(above.subplots(len(noisy), len(TIMES))):
        for column, axis in enumerate(axes):
            axis.imshow(noisy[row, column], cmap="gray", vmin=-2, vmax=2)
            axis.set_axis_off()
            if row == 0:
                axis.set_title(f"t = {TIMES[column]}", fontsize=8)
    for axis, (sampler, (images, seconds)) in zip(below.subplots(1, len(sampled)), sampled.items()):
        grid = np.pad(images, ((0, 0), (0, 1), (0, 1)), constant_values=-1).reshape(2, len(images) // 2, 9, 9).transpose(0, 2, 1, 3)
        axis.imshow(grid.reshape(2 * 9, len(images) // 2 * 9), cmap="gray", vmin=-1, vmax=1)
        axis.set_axis_off()
        axis.set_title(f"{sampler.upper()}, {STEPS[sampler]} steps: {seconds:.2f} s", fontsize=10)
    figure.savefig(file, format=kind, dpi=110)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
