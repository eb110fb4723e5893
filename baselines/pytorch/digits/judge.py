"""How good samples of digits, or videos of them, are, in numbers, by a classifier trained on the real ones: how often it sees the label that was
asked for (of a video: in every frame), and the Frechet distance (Heusel et al., NeurIPS 2017) between its features of samples and of held-out
digits; of videos also that of the differences between frames, how far from a straight line the digit's centre is (root mean square, in pixels),
and how far it goes. Beside the same of real ones. Needs scikit-learn, not PyTorch.
"""

import argparse
import csv
import json
import os
import sys
import warnings

import numpy as np
from safetensors.numpy import load_file
from scipy.linalg import sqrtm
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from baselines.pytorch.digits import data
from baselines.pytorch.output_file import OutputFile, Refused, exit_code

FEATURES = 32  # fewer than a tenth of the held-out digits, so that their covariance has full rank
COPIES = 5  # of a digit, moved, that the classifier is trained on
CROP = data.SIDE + 2  # of a frame, around the digit's centre
LEAST_INK = 0.1  # of white; what is less is background


def shifts(images):
    """The images, and the images moved by one pixel up, down, left and right."""
    yield images
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)), constant_values=-1)
    for row, column in ((0, 1), (2, 1), (1, 0), (1, 2)):
        yield padded[:, row:row + 8, column:column + 8]


class Judge:
    """Of images [n, 8, 8]."""

    def __init__(self):
        self.train, self.train_labels, self.held_out, self.held_out_labels = self.load()
        # On shifted copies too: without them it knows 97 % of the held-out digits, with them 99 %.
        images = self.copies()
        self.network = MLPClassifier((128, FEATURES), activation="tanh", alpha=1e-3, max_iter=40, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # 40 rounds are enough
            self.network.fit(images.reshape(len(images), -1), np.tile(self.train_labels, COPIES))

    def load(self):
        return data.load()

    def copies(self):
        return np.concatenate(list(shifts(self.train)))

    def seen(self, images):
        """What the classifier takes: [n, numbers]."""
        return images.reshape(-1, data.SIDE**2)

    def features(self, images):
        hidden = self.seen(images)
        for weights, bias in zip(self.network.coefs_[:2], self.network.intercepts_[:2]):
            hidden = np.tanh(hidden @ weights + bias)
        return hidden

    def agreement(self, images, labels):
        predicted = self.network.predict(self.seen(images)).reshape(len(labels), -1)
        return float((predicted == labels[:, None]).all(1).mean())

    def distance(self, images):
        """To the held-out digits."""
        return frechet(self.features(images), self.features(self.held_out))

    def numbers(self, images, labels):
        """{quantity: (of the images, of real ones)}"""
        return {"agreement": (self.agreement(images, labels), self.agreement(self.held_out, self.held_out_labels)),
                "frechet": (self.distance(images), self.distance(self.train))}


class VideoJudge(Judge):
    """Of videos [n, 16, 16, 16]."""

    def load(self):
        self.generator = np.random.default_rng(0)
        train, train_labels, held_out, held_out_labels = data.load()
        return self.moved(train), train_labels, self.moved(held_out), held_out_labels

    def moved(self, images):
        return data.placed(np, images, data.path(np, self.generator.random((len(images), 1 + data.ENDS, 2)))).astype(np.float32)

    def copies(self):
        return np.concatenate([self.seen(self.train[:, frame : frame + 1]) for frame in np.linspace(0, data.FRAMES - 1, COPIES).astype(int)])

    def seen(self, images):
        crops = data.placed(np, images.reshape(-1, data.FRAME_SIDE, data.FRAME_SIDE), ((CROP - 1) / 2 - centres(images)).reshape(-1, 1, 2), CROP)
        return crops.reshape(-1, CROP**2)

    def change(self, videos):
        """Differences between frames, by the main directions in which those of real videos lie."""
        def differences(videos):
            return np.diff(videos, axis=1).reshape(-1, data.FRAME_SIDE**2)
        covariance = np.cov(differences(self.train), rowvar=False)
        return differences(videos) @ np.linalg.eigh(covariance)[1][:, -FEATURES:]

    def numbers(self, videos, labels):
        real = self.train[:len(videos)]
        change, way = self.change(self.held_out), deviation_and_way(self.held_out)
        return {**super().numbers(videos, labels),
                "frechet": (self.distance(videos), self.distance(real)),
                "frechet_of_differences": (frechet(self.change(videos), change), frechet(self.change(real), change)),
                **{name: (drawn, real) for name, drawn, real in zip(("deviation_px", "way_px"), deviation_and_way(videos), way)}}


def centres(videos):
    """Row and column of the ink's middle [n, frames, 2]; of an empty frame the frame's."""
    ink = (videos + 1) / 2
    ink = np.where(ink < LEAST_INK, 1e-9, ink)
    places = np.arange(data.FRAME_SIDE)
    total = ink.sum((-2, -1))
    return np.stack([(ink.sum(-1) * places).sum(-1) / total, (ink.sum(-2) * places).sum(-1) / total], axis=-1)


def deviation_and_way(videos):
    """Of the digit's centre from the straight line, at one speed, that fits it best; and from the line's one end to the other. In pixels."""
    times = np.stack([np.ones(videos.shape[1]), np.arange(videos.shape[1])], axis=1)
    centre = centres(videos)
    fit = np.linalg.pinv(times) @ centre
    deviation = np.sqrt(((centre - times @ fit) ** 2).sum(-1).mean(-1))
    return float(deviation.mean()), float((np.linalg.norm(fit[:, 1], axis=-1) * (videos.shape[1] - 1)).mean())


def frechet(a, b):
    difference = a.mean(0) - b.mean(0)
    covariance_a, covariance_b = np.cov(a, rowvar=False), np.cov(b, rowvar=False)
    cross = np.real(sqrtm(covariance_a @ covariance_b))
    return float(difference @ difference + np.trace(covariance_a + covariance_b - 2 * cross))


def write_table(out, count, numbers):
    def fill(part):
        with open(part, "w", newline="") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(["quantity", "samples", "real"])
            writer.writerow(["count", count, ""])
            writer.writerows([name, f"{drawn:.4f}", f"{real:.4f}"] for name, (drawn, real) in numbers.items())
    out.write(fill)


def judge(arguments):
    if arguments.table and os.path.realpath(arguments.table) == os.path.realpath(arguments.samples):
        raise Refused(f"--table {arguments.table}: is the file of the samples")
    table = None if arguments.table is None else OutputFile(arguments.table, "--table")
    try:
        tensors = load_file(arguments.samples)
        images, labels = tensors["images"].astype(np.float32), tensors["labels"].astype(np.int64)
    except Exception as error:  # whatever safetensors says of a broken file
        raise Refused(f"{arguments.samples}: {error}") from None
    picture, video = (1, data.SIDE, data.SIDE), (data.FRAMES, 1, data.FRAME_SIDE, data.FRAME_SIDE)
    if labels.ndim != 1 or len(labels) <= FEATURES or not set(labels) <= set(range(10)) or images.shape not in ((len(labels), *picture), (len(labels), *video)) or not np.isfinite(images).all():
        raise Refused(f"{arguments.samples}: needs finite images [n, 1, 8, 8] or videos [n, 16, 1, 16, 16], and labels [n] of 0 to 9, of n above {FEATURES}; "
                      f"has {images.shape} and {labels.shape}")
    moves = images.ndim == 5
    numbers = (VideoJudge if moves else Judge)().numbers(np.squeeze(images, 2 if moves else 1).clip(-1, 1), labels)
    if table:
        write_table(table, len(labels), numbers)
    print(json.dumps({"samples": len(labels), **{name: value for quantity, (drawn, real) in numbers.items()
                                                 for name, value in ((quantity, drawn), (f"{quantity}_real", real))}}, indent=2),
          file=table.words if table else sys.stdout)


def main(argv):
    parser = argparse.ArgumentParser(prog="scripts/judge-digits", description=__doc__)
    parser.add_argument("samples", help="safetensors file of `noisefloor sample digits --tensor`: images [n, 1, 8, 8] and labels [n]; of "
                                        "moving-digits: images [n, 16, 1, 16, 16]")
    parser.add_argument("--table", metavar="FILE", help="CSV file of the numbers")
    return exit_code("judge-digits", judge, parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
