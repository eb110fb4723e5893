"""Timing, by the same method as bench/measure: cold and warm, medians of raw samples, one stopping rule."""

import time
from dataclasses import dataclass, field

import torch

from baselines.pytorch.stopping import MIN_SAMPLES, precise

BATCH = 10  # samples enqueued behind one blocking kernel; the launch queue holds about a thousand
TIME_CAP_S = 1.5
GRAPH_LAUNCHES = 10


@dataclass
class Timing:
    cold_us: list = field(default_factory=list)
    warm_us: list = field(default_factory=list)
    stop: str = ""


def _sample_until_precise(enqueue_batch, cap_s):
    """`enqueue_batch()` returns a batch of samples. Returns them all, and why it stopped."""
    samples, deadline = [], time.monotonic() + cap_s
    while True:
        samples += enqueue_batch()
        if precise(samples):
            return samples, "converged"
        if len(samples) >= MIN_SAMPLES and time.monotonic() >= deadline:
            return samples, "time_cap"


class Timer:
    """One per device; owns the buffer whose reading evicts L2."""

    def __init__(self, device):
        properties = torch.cuda.get_device_properties(device)
        self.device = device
        self.evictor = torch.zeros(2 * properties.L2_cache_size // 4 + 4, dtype=torch.float32, device=device)
        self.evicted = torch.zeros((), dtype=torch.float32, device=device)
        self.cycles_per_second = 1e3 * getattr(properties, "clock_rate", 2_000_000)  # kHz; absent from older PyTorch

    def evict(self):
        torch.sum(self.evictor, 0, out=self.evicted)  # reads: leaves no dirty lines for the next launch to write back

    def time(self, function, cap_s=TIME_CAP_S):
        for _ in range(3):
            function()
        torch.cuda.synchronize()
        timing = Timing()
        timing.cold_us, timing.stop = _sample_until_precise(self._cold_batch(function), cap_s)
        timing.warm_us = self._warm(function, cap_s)
        return timing

    def _block_for(self, seconds):
        """Occupies the stream, so that what is enqueued meanwhile runs back to back."""
        torch.cuda._sleep(int(seconds * self.cycles_per_second))

    def _cold_batch(self, function):
        starts = [torch.cuda.Event(enable_timing=True) for _ in range(BATCH)]
        ends = [torch.cuda.Event(enable_timing=True) for _ in range(BATCH)]
        host_seconds = 0.002

        def batch():
            nonlocal host_seconds
            torch.cuda.synchronize()
            self._block_for(1.5 * host_seconds)
            began = time.perf_counter()
            for start, end in zip(starts, ends):
                self.evict()
                start.record()
                function()
                end.record()
            host_seconds = time.perf_counter() - began
            torch.cuda.synchronize()
            return [1e3 * start.elapsed_time(end) for start, end in zip(starts, ends)]

        batch()  # learns how long the host takes
        return batch

    def _warm(self, function, cap_s):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(GRAPH_LAUNCHES):
                function()
        starts = [torch.cuda.Event(enable_timing=True) for _ in range(BATCH)]
        ends = [torch.cuda.Event(enable_timing=True) for _ in range(BATCH)]
        graph.replay()

        def batch():
            torch.cuda.synchronize()
            self._block_for(0.001)
            for start, end in zip(starts, ends):
                start.record()
                graph.replay()
                end.record()
            torch.cuda.synchronize()
            return [1e3 * start.elapsed_time(end) / GRAPH_LAUNCHES for start, end in zip(starts, ends)]

        samples, _ = _sample_until_precise(batch, cap_s)
        return samples
