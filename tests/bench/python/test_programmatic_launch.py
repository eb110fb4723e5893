"""Launches that may overlap with the kernel before them give bit for bit what others give."""

import built  # noqa: F401 - first
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import noisefloor  # noqa: E402
from stream_calls import as_tuple, calls_of  # noqa: E402

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU")
LATE_CYCLES = 100_000  # some 50 us: longer than any of the launches before could overlap


def test_it_is_a_setting_of_the_process():
    assert noisefloor.set_programmatic_launch(True) is False and noisefloor.set_programmatic_launch(False) is True
    for wrong in ("on", 1, None):
        with pytest.raises(TypeError):
            noisefloor.set_programmatic_launch(wrong)
    assert noisefloor.set_programmatic_launch(False) is False


def work(call, x, sources):
    """Behind kernels of PyTorch's that write late, behind ours, behind a copy and a memset, and with PyTorch's behind them; on one stream, whose memory
    goes from hand to hand."""
    made = []
    for source in sources:
        torch.cuda._sleep(LATE_CYCLES)
        x.copy_(source)
        first, again = as_tuple(call(x)), as_tuple(call(x))
        made += [one.clone() for one in first + again]
        del first, again
        x.add_(1)
        made += [one.clone() for one in as_tuple(call(x))]
        x.zero_()
        made += [one.clone() for one in as_tuple(call(x))]
    return made


def forked(call, x, sources):
    """A call on a stream of its own between two, and one where both meet."""
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    x.copy_(sources[0])
    made = [one.clone() for one in as_tuple(call(x))]
    other = x.clone()
    side.wait_stream(main)
    with torch.cuda.stream(side):
        aside = [one.clone() for one in as_tuple(call(other))]
    made += [one.clone() for one in as_tuple(call(x))]
    main.wait_stream(side)
    return made + aside + [one.clone() for one in as_tuple(call(other))]


def captured(function, *given):
    function(*given)  # what is laid out, looked up and loaded at a first call
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = function(*given)
    for one in made:
        one.zero_()
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    return made


@needs_gpu
@pytest.mark.parametrize("function", [work, forked])
@pytest.mark.parametrize("graph", [False, True], ids=["stream", "graph"])
def test_results_are_the_same(function, graph):
    calls, (tensors,) = calls_of("cuda", 1)
    wrong = []
    for (name, call), x in zip(calls, tensors):
        sources = [x.clone(), x.flip(0).contiguous(), x * 0.5]
        wanted = [one.clone() for one in function(call, x, sources)]
        torch.cuda.synchronize()
        noisefloor.set_programmatic_launch(True)
        try:
            found = captured(function, call, x, sources) if graph else function(call, x, sources)
            torch.cuda.synchronize()
        finally:
            noisefloor.set_programmatic_launch(False)
        wrong += [name for one, other in zip(found, wanted, strict=True) if not torch.equal(one.view(torch.uint8), other.view(torch.uint8))]
    assert not wrong
