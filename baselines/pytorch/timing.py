"""Times of launches, cold and warm, as bench/platform takes them: between events, behind something that holds the stream."""

import dataclasses

import torch

from baselines.pytorch.errors import Unsupported

BATCH = 4  # samples enqueued behind one hold: as the program (bench/platform)
EVICTED_L2 = 2.5  # times L2's size, as the program reads
MAX_HOLD_S = 1.0


@dataclasses.dataclass
class Hold:
    """What the last samples needed, where the next ones begin."""

    seconds: float
    batch: int = BATCH  # fewer of what would fill the launch queue, which then waits for the device: long graphs of networks


def held(hold, enqueue, starts, hold_s):
    """Runs enqueue() behind hold(seconds), until the hold outlasted it: where the first sample had begun when the host was done, the host's
    own time may be in the samples, so they are discarded and the hold is doubled. Returns how long it held."""
    while True:
        hold(hold_s)
        enqueue()
        if not starts[0].query():
            return hold_s
        hold_s *= 2
        if hold_s > MAX_HOLD_S:
            raise Unsupported(f"its launches cannot be enqueued within {MAX_HOLD_S:g} s: it waits for the device")


class Timer:
    """One per device; owns the buffer whose reading evicts L2."""

    def __init__(self, device):
        properties = torch.cuda.get_device_properties(device)
        self.evictor = torch.zeros(int(EVICTED_L2 * properties.L2_cache_size) // 4 + 4, dtype=torch.float32, device=device)
        self.evicted = torch.zeros((), dtype=torch.float32, device=device)
        self.cycles_per_second = 1e3 * getattr(properties, "clock_rate", 2_000_000)  # kHz; absent from older PyTorch

    def evict(self):
        torch.sum(self.evictor, 0, out=self.evicted)  # reads: leaves no dirty lines for the next launch to write back

    def _hold(self, seconds):
        torch.cuda.synchronize()
        torch.cuda._sleep(int(seconds * self.cycles_per_second))

    def samples(self, launch, count, hold, launches=1, prepare=lambda: None):
        """`count` times of launch(), each behind prepare(), in microseconds for each of its `launches`."""
        times = []
        while len(times) < count:
            group = min(hold.batch, count - len(times))
            starts = [torch.cuda.Event(enable_timing=True) for _ in range(group)]
            ends = [torch.cuda.Event(enable_timing=True) for _ in range(group)]

            def enqueue():
                for start, end in zip(starts, ends):
                    prepare()
                    start.record()
                    launch()
                    end.record()

            try:
                hold.seconds = held(self._hold, enqueue, starts, hold.seconds)
            except Unsupported:
                if group == 1:
                    raise
                hold.batch = group // 2
                continue
            torch.cuda.synchronize()
            times += [1e3 * start.elapsed_time(end) / launches for start, end in zip(starts, ends)]
        return times
