"""Judges a result before it is timed: kernels/core/op.h's Tolerance against the op's reference in fp64."""

from dataclasses import dataclass

import torch

@dataclass
class Verdict:
    reason: str  # "" when correct
    max_rel_error: float
    tolerance: float


def errors(actual, expected):
    """Largest |difference| / (|expected| + rms(expected)), and the relative L2 norm of the difference."""
    expected = expected.double()
    difference = (actual.double() - expected).abs()
    norm = torch.linalg.vector_norm(expected)
    rms = norm / expected.numel() ** 0.5
    largest = (difference / (expected.abs() + rms)).max().item()
    return largest, (torch.linalg.vector_norm(difference) / norm).item()


def judge(actual, expected, cost, roundings):
    """The op's tolerance foresees one rounding. Of several, each may cost an element as much again, and half more where large terms cancel;
    over a whole output independent errors add in squares, which is what tells a wrong formula from rounding."""
    verdict = Verdict("", 0.0, cost.max_error * (1 + 1.5 * (roundings - 1)))
    l2_tolerance = cost.l2_error * roundings**0.5
    if len(actual) != len(expected):
        verdict.reason = f"{len(actual)} outputs instead of {len(expected)}"
    for index, (result, wanted) in enumerate(zip(actual, expected)):
        if result.shape != wanted.shape:
            verdict.reason = f"output {index}: shape {tuple(result.shape)} instead of {tuple(wanted.shape)}"
            return verdict
        largest, l2 = errors(result, wanted)
        if not largest <= verdict.max_rel_error:  # a NaN stays
            verdict.max_rel_error = largest
        if not largest <= verdict.tolerance:
            verdict.reason = f"output {index}: error {largest:.3g} above {verdict.tolerance:.3g}"
        elif not l2 <= l2_tolerance:
            verdict.reason = f"output {index}: relative L2 error {l2:.3g} above {l2_tolerance:.3g}"
    return verdict
