"""The digits as images in [-1, 1], split once and for all into a training part and a held-out part, and set in motion. `xp` is numpy or torch.
As a program it writes the training part as `noisefloor train` takes it.
"""

import argparse
import sys

import numpy as np
from safetensors.numpy import save_file
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from baselines.pytorch.output_file import OutputFile, Refused, exit_code

CLASSES = 10
HELD_OUT = 0.2  # of 1797
SIDE = 8
FRAMES, FRAME_SIDE = 16, 16  # of videos
ROOM = FRAME_SIDE - SIDE  # that a digit has to move in, each way
ENDS = 3  # drawn for a motion, of which the farthest is taken, so that most digits go some way


def load():
    """(training images, training labels, held-out images, held-out labels); images [n, 8, 8] float32."""
    images, labels = load_digits(return_X_y=True)
    images = (images.reshape(-1, SIDE, SIDE) / 8 - 1).astype(np.float32)  # the data set counts from 0 to 16
    train, held_out, train_labels, held_out_labels = train_test_split(images, labels, test_size=HELD_OUT, random_state=0, stratify=labels)
    return train, train_labels, held_out, held_out_labels


def path(xp, uniform):
    """The corner of the digit [n, FRAMES, 2] on a straight way at one speed, of numbers [n, 1 + ENDS, 2] between 0 and 1."""
    points = ROOM * uniform
    start, ends = points[:, :1], points[:, 1:]
    farthest = ((ends - start) ** 2).sum(-1).argmax(-1)
    end = ends[xp.arange(len(ends)), farthest][:, None]
    return start + (end - start) * (xp.arange(FRAMES) / (FRAMES - 1))[None, :, None]


def placed(xp, images, corners, side=FRAME_SIDE):
    """Images [n, h, w] with their corners [n, frames, 2], between pixels too (bilinear), in frames [n, frames, side, side] of background."""
    def weights(corner, extent):  # [n, frames, side, extent]
        return (1 - abs(xp.arange(side)[:, None] - xp.arange(extent) - corner[..., None, None])).clip(0)
    rows, columns = weights(corners[..., 0], images.shape[-2]), weights(corners[..., 1], images.shape[-1])
    return rows @ (images[:, None] + 1) @ columns.swapaxes(-1, -2) - 1


def enlarged(images, side):
    """Images [n, h, h] as [n, side, side], between pixels (bilinear): the corners stay where they are."""
    places = np.linspace(0, images.shape[-1] - 1, side)
    weights = (1 - abs(places[:, None] - np.arange(images.shape[-1]))).clip(0).astype(images.dtype)
    return weights @ images @ weights.T


def write(arguments):
    images, labels, _, _ = load()
    if arguments.side < SIDE:
        raise Refused(f"--side {arguments.side}: the digits have {SIDE}, and are enlarged only")
    if arguments.videos is not None and not 1 <= arguments.videos <= 100_000:
        raise Refused(f"--videos {arguments.videos}: the range is 1 to 100,000")
    if arguments.videos and arguments.side != SIDE:
        raise Refused(f"--side: the digits of --videos stay {SIDE} wide")
    if arguments.videos:
        chosen, generator = np.arange(arguments.videos) % len(images), np.random.default_rng(0)
        moved = placed(np, images[chosen], path(np, generator.random((arguments.videos, 1 + ENDS, 2))))
        images, labels = moved.astype(np.float32).clip(-1, 1), labels[chosen]
    else:
        images = enlarged(images, arguments.side)
    tensors = {"images": np.ascontiguousarray(np.expand_dims(images, -3)), "labels": labels.astype(np.int64)}
    OutputFile(arguments.out).write(lambda part: save_file(tensors, part, metadata={"layout": "channels-first"}))


def main(argv):
    parser = argparse.ArgumentParser(prog="python3 -m baselines.pytorch.digits.data", description=__doc__)
    parser.add_argument("--out", required=True, metavar="FILE", help="safetensors file of images [n, 1, SIDE, SIDE] and labels [n]")
    parser.add_argument("--side", type=int, default=SIDE, help="height and width to which the digits are enlarged; default: %(default)s, their own")
    parser.add_argument("--videos", type=int, help=f"so many videos of digits that move instead: images [n, {FRAMES}, 1, {FRAME_SIDE}, {FRAME_SIDE}]")
    return exit_code("digits", write, parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
