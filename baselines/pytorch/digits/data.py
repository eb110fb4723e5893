"""The digits as images in [-1, 1], split once and for all into a training part and a held-out part."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

CLASSES = 10
HELD_OUT = 0.2  # of 1797


def load():
    """(training images, training labels, held-out images, held-out labels); images [n, 8, 8] float32."""
    images, labels = load_digits(return_X_y=True)
    images = (images.reshape(-1, 8, 8) / 8 - 1).astype(np.float32)  # the data set counts from 0 to 16
    train, held_out, train_labels, held_out_labels = train_test_split(images, labels, test_size=HELD_OUT, random_state=0, stratify=labels)
    return train, train_labels, held_out, held_out_labels
