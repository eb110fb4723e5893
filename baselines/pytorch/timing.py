"""Timing, by the same method as bench/measure: cold and warm, medians of raw samples, one stopping rule."""

import time
from dataclasses import dataclass, field

import torch

from baselines.pytorch.clocks import DISQUALIFYING
from baselines.pytorch.errors import Unsupported
from baselines.pytorch.stopping import MIN_SAMPLES, precise

BATCH = 4  # samples enqueued behind one blocking kernel: as the C++ harness (bench/platform)
TIME_CAP_S = 1.5
GRAPH_LAUNCHES = 10
EVICTED_L2 = 2.5  # times L2's size, as the C++ harness reads
MAX_HOLD_S = 1.0
THROTTLE_RETRY_S = 5.0  # how long batches are discarded before a row counts as throttled


@dataclass
class Timing:
    cold_us: list = field(default_factory=list)
    warm_us: list = field(default_factory=list)  # empty where throttled
    stop: str = ""
    clocks_mhz: list = field(default_factory=list)  # one after each cold batch that was kept
    throttle: int | None = None  # bits of clocks.THROTTLE seen in those batches; None: not known
    discarded_s: float = 0.0

    def throttled(self):
        return bool((self.throttle or 0) & DISQUALIFYING)


def sample_until_precise(batch, cap_s):
    """`batch()` returns samples. Returns them all, and why it stopped."""
    samples, deadline = [], time.monotonic() + cap_s
    while True:
        samples += batch()
        if precise(samples):
            return samples, "converged"
        if len(samples) >= MIN_SAMPLES and time.monotonic() >= deadline:
            return samples, "time_cap"


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


def collect(batch, clocks, timing, cap_s, retry_s=THROTTLE_RETRY_S):
    """Cold samples into `timing`. Batches after which the clocks are throttled are discarded and taken again, for `retry_s` at most."""

    def watched():
        while True:
            began = time.monotonic()
            samples = batch()
            mhz, mask = clocks.read()
            if (mask or 0) & DISQUALIFYING and timing.discarded_s < retry_s:
                timing.discarded_s += time.monotonic() - began
                continue
            if mhz is not None:
                timing.clocks_mhz.append(mhz)
            if mask is not None:
                timing.throttle = (timing.throttle or 0) | mask
            return samples

    timing.cold_us, timing.stop = sample_until_precise(watched, cap_s)


class Timer:
    """One per device; owns the buffer whose reading evicts L2."""

    def __init__(self, device, clocks):
        properties = torch.cuda.get_device_properties(device)
        self.device = device
        self.clocks = clocks
        self.evictor = torch.zeros(int(EVICTED_L2 * properties.L2_cache_size) // 4 + 4, dtype=torch.float32, device=device)
        self.evicted = torch.zeros((), dtype=torch.float32, device=device)
        self.cycles_per_second = 1e3 * getattr(properties, "clock_rate", 2_000_000)  # kHz; absent from older PyTorch

    def evict(self):
        torch.sum(self.evictor, 0, out=self.evicted)  # reads: leaves no dirty lines for the next launch to write back

    def time(self, function, cap_s=TIME_CAP_S, whole=False):
        """`whole`: a call is hundreds of kernels. Enqueued one by one they would fill the launch queue, which then waits for the device; so
        cold samples, too, are replays of a graph, of one call."""
        for _ in range(3):
            function()
        torch.cuda.synchronize()
        timing = Timing()
        launches = 1 if whole else GRAPH_LAUNCHES
        graph = self._capture(function, launches) if whole else None
        collect(self._cold_batch(graph.replay if whole else function), self.clocks, timing, cap_s)
        if not timing.throttled():
            timing.warm_us = self._warm(graph or self._capture(function, launches), launches, cap_s)
        return timing

    def _hold(self, seconds):
        """Occupies the stream, so that what is enqueued meanwhile runs back to back."""
        torch.cuda.synchronize()
        torch.cuda._sleep(int(seconds * self.cycles_per_second))

    def _batch(self, launch, prepare, hold_s, launches):
        """A function that times launch() BATCH times, each behind prepare(), in microseconds for each of its `launches`."""
        starts = [torch.cuda.Event(enable_timing=True) for _ in range(BATCH)]
        ends = [torch.cuda.Event(enable_timing=True) for _ in range(BATCH)]

        def enqueue():
            for start, end in zip(starts, ends):
                prepare()
                start.record()
                launch()
                end.record()

        def batch():
            nonlocal hold_s
            hold_s = held(self._hold, enqueue, starts, hold_s)
            torch.cuda.synchronize()
            return [1e3 * start.elapsed_time(end) / launches for start, end in zip(starts, ends)]

        batch()  # learns how long the host takes
        return batch

    def _cold_batch(self, function):
        return self._batch(function, self.evict, 0.002, 1)

    def _capture(self, function, launches):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(launches):
                function()
        return graph

    def _warm(self, graph, launches, cap_s):
        samples, _ = sample_until_precise(self._batch(graph.replay, lambda: None, 0.001, launches), cap_s)
        return samples
