"""How PyTorch's launches are timed: what is held behind what, without a GPU."""

from unittest import mock

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
from baselines.pytorch import timing  # noqa: E402
from baselines.pytorch.errors import Unsupported  # noqa: E402


def test_a_batch_that_began_too_early_is_discarded():
    began, holds, launches = iter([True, True, False]), [], []
    first = mock.Mock(query=lambda: next(began))
    assert timing.held(holds.append, lambda: launches.append(1), [first], 0.002) == 0.008
    assert holds == [0.002, 0.004, 0.008] and len(launches) == 3


def test_what_waits_for_the_device_is_refused():
    with pytest.raises(Unsupported, match="waits for the device"):
        timing.held(lambda seconds: None, lambda: None, [mock.Mock(query=lambda: True)], 0.002)


@pytest.mark.parametrize("room, batches", [(4, [4, 3]), (2, [2, 2, 2, 1]), (1, [1] * 7), (0, None)])
def test_of_what_fills_the_queue_fewer_are_enqueued(room, batches):
    """A queue of two launches: a third waits until the hold is over, when the first has begun."""
    waiting, taken = [], []

    def synchronize():
        if waiting:
            taken.append(len(waiting))
        waiting.clear()

    def event(enable_timing):
        return mock.Mock(query=lambda: len(waiting) > room, elapsed_time=lambda end: 3.0)

    timer, hold = timing.Timer.__new__(timing.Timer), timing.Hold(0.002)
    timer.cycles_per_second = 1
    with mock.patch.multiple(timing.torch.cuda, synchronize=synchronize, _sleep=lambda cycles: waiting.clear(), Event=event, create=True):
        if batches is None:
            with pytest.raises(Unsupported, match="waits for the device"):
                timer.samples(lambda: waiting.append(1), 7, hold)
            return
        assert timer.samples(lambda: waiting.append(1), 7, hold, launches=2) == [1500.0] * 7
    assert [count for count in taken if count <= room] == batches
    assert hold.batch == min(room, timing.BATCH) and hold.seconds < timing.MAX_HOLD_S
