"""How far a result is from its op's reference, in the terms of kernels/core/op.h's Tolerance. The program judges."""

import math

import torch


def errors(actual, expected):
    """Largest |difference| / (|expected| + rms(expected)), and the relative L2 norm of the difference; None for NaN."""
    expected = expected.double()
    difference = (actual.double() - expected).abs()
    norm = torch.linalg.vector_norm(expected)
    rms = norm / expected.numel() ** 0.5
    found = {"max": (difference / (expected.abs() + rms)).max().item(), "l2": (torch.linalg.vector_norm(difference) / norm).item()}
    return {name: error if math.isfinite(error) else None for name, error in found.items()}


def compare(actual, expected):
    """{"errors": ...} of every output, or {"wrong": ...}."""
    if len(actual) != len(expected):
        return {"wrong": f"{len(actual)} outputs instead of {len(expected)}"}
    for index, (result, wanted) in enumerate(zip(actual, expected)):
        if result.shape != wanted.shape:
            return {"wrong": f"output {index}: shape {tuple(result.shape)} instead of {tuple(wanted.shape)}"}
    return {"errors": [errors(result, wanted) for result, wanted in zip(actual, expected)]}
