"""How PyTorch's launches are timed: what is held behind what, without a GPU."""

import unittest
from unittest import mock

from baselines.pytorch.errors import Unsupported

try:
    import torch
except ImportError:
    torch = None


@unittest.skipIf(torch is None, "PyTorch is not installed")
class Timing(unittest.TestCase):
    def test_a_batch_that_began_too_early_is_discarded(self):
        from baselines.pytorch.timing import held

        began, holds, launches = iter([True, True, False]), [], []
        first = mock.Mock(query=lambda: next(began))
        self.assertEqual(held(holds.append, lambda: launches.append(1), [first], 0.002), 0.008)
        self.assertEqual(holds, [0.002, 0.004, 0.008])
        self.assertEqual(len(launches), 3)

    def test_what_waits_for_the_device_is_refused(self):
        from baselines.pytorch.timing import held

        with self.assertRaisesRegex(Unsupported, "waits for the device"):
            held(lambda seconds: None, lambda: None, [mock.Mock(query=lambda: True)], 0.002)

    def test_of_what_fills_the_queue_fewer_are_enqueued(self):
        """A queue of two launches: a third waits until the hold is over, when the first has begun."""
        from baselines.pytorch import timing

        for room, batches in ((4, [4, 3]), (2, [2, 2, 2, 1]), (1, [1] * 7), (0, None)):
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
                    with self.assertRaisesRegex(Unsupported, "waits for the device"):
                        timer.samples(lambda: waiting.append(1), 7, hold)
                    continue
                self.assertEqual(timer.samples(lambda: waiting.append(1), 7, hold, launches=2), [1500.0] * 7)
            self.assertEqual([count for count in taken if count <= room], batches)
            self.assertEqual(hold.batch, min(room, timing.BATCH))
            self.assertLess(hold.seconds, timing.MAX_HOLD_S)
