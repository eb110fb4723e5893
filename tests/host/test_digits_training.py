"""What training does to a batch of digits; training itself takes a GPU's minute and is judged by scripts/judge-digits."""

import pytest

try:
    import torch

    from baselines.pytorch.digits import train
except ImportError:
    torch = None

pytestmark = pytest.mark.skipif(torch is None, reason="needs PyTorch and scikit-learn")


def test_a_tenth_of_the_labels_is_left_out_whole():
    labels = torch.eye(10)[torch.arange(20_000) % 10]
    left = train.without_some(labels, torch.Generator().manual_seed(0))
    empty = left.sum(1) == 0
    assert torch.equal(left[~empty], labels[~empty])
    assert empty.float().mean().item() == pytest.approx(train.UNLABELLED, abs=0.01)  # five standard deviations
    assert not torch.equal(left, train.without_some(labels, torch.Generator().manual_seed(1)))
