"""Two threads, each on a CUDA stream of its own, give bit for bit what one thread gives; on a CPU without the streams."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import built  # noqa: F401 - first
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import noisefloor  # noqa: E402
from stream_calls import as_tuple, calls_of  # noqa: E402

THREADS = 2


@pytest.fixture(params=[False, True], ids=["ordinary", "programmatic"])
def programmatic(request):
    before = noisefloor.set_programmatic_launch(request.param)
    yield
    noisefloor.set_programmatic_launch(before)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU"))])
def test_two_threads_give_what_one_gives(device, programmatic):
    calls, tensors = calls_of(device, THREADS)
    wanted = [[as_tuple(call(x)) for (_, call), x in zip(calls, own)] for own in tensors]
    begin = threading.Barrier(THREADS)
    if device == "cuda":
        torch.cuda.synchronize()

    def work(thread):
        """Counts bytes that differ, on the thread's own stream: nothing waits, and what a call made is soon another's memory."""
        wrong = {}
        with torch.cuda.stream(torch.cuda.Stream()) if device == "cuda" else contextlib.nullcontext():
            begin.wait()
            for _ in range(20 if device == "cuda" else 2):
                for (name, call), x, right in zip(calls, tensors[thread], wanted[thread]):
                    for one, other in zip(as_tuple(call(x)), right, strict=True):
                        wrong[name] = wrong.get(name, 0) + (one.view(torch.uint8) != other.view(torch.uint8)).sum()
            return {name: int(count) for name, count in wrong.items() if count}

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(work, range(THREADS))) == [{}] * THREADS
