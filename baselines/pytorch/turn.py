"""The GPU's turn where several sweeps share one: the program that asks has it, and this process gives it away while it compiles."""

import contextlib
import fcntl
import os


class Turn:
    """A lock that this process shares with the program that started it (bench/platform/device_turn.h); none where nobody shares the GPU."""

    def __init__(self, descriptor):
        self.descriptor = descriptor
        self._given = False

    @classmethod
    def inherited(cls):
        number = os.environ.pop("NOISEFLOOR_TURN", None)
        if number is None:
            return cls(None)
        os.set_inheritable(int(number), False)  # what this process starts must not keep it
        return cls(int(number))

    @contextlib.contextmanager
    def aside(self):
        """Around what computes on the host alone: others may use the GPU meanwhile."""
        if self.descriptor is None or self._given:
            yield
            return
        fcntl.flock(self.descriptor, fcntl.LOCK_UN)
        self._given = True
        try:
            yield
        finally:
            self.take()

    def take(self):
        """Waits for it, where it was given away."""
        if self._given:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX)
            self._given = False


def compile_aside(turn):
    """From now on Inductor compiles aside, but for searches, which time kernels: of max-autotune, and of padding before a product."""
    if turn.descriptor is None:
        return
    try:
        import torch._inductor.compile_fx as inductor
        import torch._inductor.config
        from torch._inductor.fx_passes import pad_mm
        from torch._inductor.runtime.benchmarking import benchmarker

        searches = pad_mm._should_pad, benchmarker.benchmark_gpu
    except Exception:  # another PyTorch, or a broken one: the turn is kept while it compiles
        return

    def taking(function):
        def first_take(*arguments, **options):
            turn.take()
            return function(*arguments, **options)
        return first_take

    def aside(function):
        def compile_fx(*arguments, **options):
            searching = torch._inductor.config.max_autotune or (options.get("config_patches") or {}).get("max_autotune")
            with contextlib.nullcontext() if searching else turn.aside():
                return function(*arguments, **options)
        return compile_fx

    inductor.compile_fx = aside(inductor.compile_fx)
    pad_mm._should_pad, benchmarker.benchmark_gpu = map(taking, searches)
