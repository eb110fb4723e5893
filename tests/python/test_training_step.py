"""A training step's ops against PyTorch's own optimizer and clipping, over steps."""

import built  # noqa: F401 - first
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from noisefloor import ops  # noqa: E402

BETAS, EPS, DECAY, STEPS = (0.8, 0.97), 1e-6, 0.1, 30


def steps_of(p, dtype, ema):
    """(p, copy) after each step of AdamW, of random gradients clipped to a norm of 15, and those steps by PyTorch in fp64."""
    generator = torch.Generator().manual_seed(4)
    theirs = torch.nn.Parameter(p.double())
    optimizer = torch.optim.AdamW([theirs], lr=1, betas=BETAS, eps=EPS, weight_decay=DECAY)
    m, v, keep = torch.zeros_like(p), torch.zeros_like(p), 0.9
    average = p.double()
    for t in range(1, STEPS + 1):
        g, rate = torch.randn(p.shape, generator=generator) * (1 if t % 3 else 0.1), 0.02 / t
        optimizer.param_groups[0]["lr"] = rate
        theirs.grad = g.double()
        clipped = torch.nn.utils.clip_grad_norm_([theirs], 15)
        optimizer.step()
        average.lerp_(theirs.detach(), 1 - keep)
        norm, scale = ops.grad_norm(g, clip=15, dtype="fp32")
        assert norm.item() == pytest.approx(clipped.item(), rel=1e-6)
        step = torch.tensor([rate, 1 / (1 - BETAS[0] ** t), 1 / (1 - BETAS[1] ** t), keep])
        copy = ops.adamw(p, m, v, g, step, scale, ema, beta1=BETAS[0], beta2=BETAS[1], eps=EPS, decay=DECAY, copy=True, dtype=dtype)
        yield p, copy, theirs.detach(), average


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_adamw_is_pytorchs(dtype):
    p = torch.randn(401, generator=torch.Generator().manual_seed(1))
    ema = p.clone()
    with torch.no_grad():
        for ours, copy, theirs, average in steps_of(p, dtype, ema):
            torch.testing.assert_close(ours.double(), theirs, rtol=2e-6, atol=2e-6)
            torch.testing.assert_close(ema.double(), average, rtol=2e-6, atol=2e-6)
            assert torch.equal(copy, ours.to(copy.dtype))
