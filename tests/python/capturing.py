"""What the tests of noisefloor.capture() share."""

import built  # noqa: F401 - first: finds the module
import pytest

from tests.cli.program import PROGRAM, needs_program  # noqa: F401 - for the tests
from tests.cli.program import run as program

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    torch = F = None
needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is not installed")


def listed(folder):
    """{(op, problem): {network: count}}"""
    result = program("list", "problems", "--problems", folder)
    assert result.returncode == 0, result.stderr
    lines = (line.rstrip("]").split() for line in result.stdout.splitlines())
    return {(op, text): uses for op, text, uses in ((line[0], line[1], line[-1].strip("[")) for line in lines)}


def found(capture):
    """In words: problems, then what is none."""
    return [f"{group.what.op} {group.what.text}" for group in capture.problems()] + [": ".join(group.what) for group in capture.unmapped()]


def maker(device, grad=False):
    def make(*shape):
        return torch.randn(*shape, device=device, requires_grad=grad)

    make.device = device
    return make


def block():
    torch.manual_seed(3)
    conv, norm, linear = torch.nn.Conv2d(4, 8, 3, padding=1), torch.nn.GroupNorm(2, 8), torch.nn.Linear(8, 24)

    def forward(x):
        h = F.silu(norm(conv(x)))
        q, k, v = linear(h.flatten(2).transpose(1, 2)).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        return h.add_(F.scaled_dot_product_attention(q, k, v).transpose(2, 3).reshape(h.shape))

    return forward, [*conv.parameters(), *norm.parameters(), *linear.parameters()]
