"""Writes captured/NETWORK.csv: the problems of one call of diffusers' U-Nets in fp32, of two images or videos, by noisefloor.capture() on the meta
device. tests/cli/test_problems.py holds `noisefloor problems --unfused` to them where there is no PyTorch.

usage: PYTHONPATH=build/host/python python3 tests/python/captured.py, with diffusers 0.42.1 and PyTorch
"""

import collections
import csv
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "captured"
NETWORKS = ("sd15", "sdxl", "svd")


def table_of(name):
    """(op, problem) -> count, as recorded."""
    with open(FOLDER / f"{name}.csv", newline="") as stream:
        return collections.Counter({(row["op"], row["problem"]): int(row["count"]) for row in csv.DictReader(stream)})


def capture(name):
    import noisefloor
    import torch

    sys.path.insert(0, str(FOLDER.parents[2]))
    from tests.bench.pipeline import diffusers_unet

    configuration = {"sd15": diffusers_unet.SD15, "sdxl": diffusers_unet.SDXL, "svd": diffusers_unet.SVD}[name]
    with torch.device("meta"), torch.no_grad():
        network = diffusers_unet.build(configuration).to("meta")
        if name == "svd":  # with what its pipeline puts beside the latents; the scheduler's division of these is no op
            latents = torch.empty(2, 14, 4, 72, 128)
            inputs = torch.empty(2), torch.empty(2, 1, configuration["cross_attention_dim"]), torch.empty(2, 3)
            with noisefloor.capture() as captured:
                network(torch.cat([latents, latents], dim=2), *inputs)
        else:
            side = {"sd15": 64, "sdxl": 128}[name]
            inputs = diffusers_unet.inputs_of(configuration, side, side, 77)
            with noisefloor.capture() as captured:
                diffusers_unet.call(network, inputs)
    return captured


def main():
    for name in NETWORKS:
        with open(FOLDER / f"{name}.csv", "w", newline="") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(["op", "problem", "count"])
            writer.writerows(sorted((group.what.op, group.what.text, group.count) for group in capture(name).problems()))


if __name__ == "__main__":
    main()
