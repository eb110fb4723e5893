"""What a user's function returns, held against its reference, or else against what the old environment returned: tensors, arrays, numbers and texts in
any nest of lists and dictionaries. The standard library will do."""

import ctypes
import hashlib
import math
import os
import pickle
from array import array

from baselines.pytorch.errors import Unsupported

MOST_VALUES = 1 << 18  # of an output, evenly spread, that distances are from; the digest is of all


def leaves(value):
    value = list(value.values()) if isinstance(value, dict) else [value] if isinstance(value, (int, float)) else value
    if not isinstance(value, (list, tuple)):
        return [value]
    if value and all(isinstance(one, (int, float)) for one in value):
        return [memoryview(array("d", value))]
    return [leaf for one in value for leaf in leaves(one)]


def read(leaf):
    """What it is, its bytes, and values, none of a text."""
    if leaf is None or isinstance(leaf, (str, bytes)):
        return repr(leaf), repr(leaf).encode(), []
    if hasattr(leaf, "data_ptr"):  # PyTorch's
        leaf = leaf.detach().cpu().contiguous()
        content = ctypes.string_at(leaf.data_ptr(), leaf.numel() * leaf.element_size())
    elif hasattr(leaf, "tobytes") and hasattr(leaf, "shape"):
        content = leaf.tobytes()
    else:
        raise Unsupported(f"it returns a {type(leaf).__name__}; tensors, arrays, numbers, texts, and lists and dictionaries of them can be compared")
    flat = leaf.reshape(-1) if hasattr(leaf, "reshape") else leaf
    return f"shape {tuple(leaf.shape)}", content, flat[:: max(1, math.ceil(len(flat) / MOST_VALUES))].tolist()


def contents(outputs):
    """A digest of all bits, and each output's (what, values)."""
    digest, found = hashlib.blake2b(digest_size=16), []
    for what, content, values in map(read, leaves(outputs)):
        digest.update(what.encode() + content)
        found.append((what, values))
    return digest.hexdigest(), found


def errors(actual, expected):
    """As case.errors; what is infinite or NaN in both is alike, and None is what is not finite."""
    apart = [0.0 if a == b or (a != a and b != b) else abs(a - b) for a, b in zip(actual, expected)]
    if not any(apart):
        return {"max": 0.0, "l2": 0.0}
    norm = math.sqrt(math.fsum(b * b for b in expected if math.isfinite(b)))
    rms = norm / math.sqrt(len(expected))
    found = {"max": max(a / (abs(b) + rms) for a, b in zip(apart, expected)) if rms else math.inf,
             "l2": math.sqrt(math.fsum(a * a for a in apart)) / norm if norm else math.inf}
    return {name: error if math.isfinite(error) else None for name, error in found.items()}


def compare(actual, expected):
    if [what for what, _ in actual] != [what for what, _ in expected]:
        mine, wanted = (", ".join(what for what, _ in found)[:80] for found in (actual, expected))
        return {"wrong": f"outputs: {mine} instead of {wanted}"}
    return {"errors": [errors(values, wanted) for (_, values), (_, wanted) in zip(actual, expected)]}


class Judge:
    """`kept`: a file of what the old environment returned first, which that side writes."""

    def __init__(self, outputs, reference, arguments, kept, is_old):
        self.digest, found = contents(outputs)
        self.of_reference = reference is not None
        if is_old and not os.path.exists(kept):
            with open(kept, "wb") as file:
                pickle.dump(found, file)
        if self.of_reference:
            found = contents(reference(*arguments))[1]
        elif os.path.exists(kept):
            with open(kept, "rb") as file:
                found = pickle.load(file)
        self.expected, self.judged = found, {}  # answers, by digest

    def __call__(self, outputs):
        digest, found = contents(outputs)
        if digest not in self.judged:
            self.judged = {digest: compare(found, self.expected)}
        return self.judged[digest]
