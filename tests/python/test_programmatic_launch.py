"""Launches that may overlap with the kernel before them give bit for bit what others give."""

import built  # noqa: F401 - first
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import noisefloor  # noqa: E402
from stream_calls import as_tuple, calls_of  # noqa: E402

LARGE = 1 << 25  # elements: an op of ours takes some 30 us to write so many


def hopper():
    return torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)


def test_it_is_a_setting_of_the_process():
    assert noisefloor.set_programmatic_launch(False) is True and noisefloor.set_programmatic_launch(True) is False
    for wrong in ("on", 1, None):
        with pytest.raises(TypeError):
            noisefloor.set_programmatic_launch(wrong)
    assert noisefloor.set_programmatic_launch(True) is True


class Late:
    """A tensor at the end of a large one, which a launch of ours that lets others begin early writes last."""

    def __init__(self, like):
        self.large, self.source = (torch.zeros(1, LARGE // 64, 64, dtype=like.dtype, device=like.device) for _ in range(2))
        self.x = self.large.view(-1)[-like.numel() :].view(like.shape)
        self.end = self.source.view(-1)[-like.numel() :].view(like.shape)

    def write(self, values):  # of 0 and more, which relu leaves as they are
        self.end.copy_(values)
        noisefloor.ops.elementwise(x=self.source, op="relu", variant="ptx_sm90a", out=self.large)


def work(call, late, sources):
    """Behind ours that write late, behind each other, behind PyTorch's kernel and a memset, and with PyTorch's behind them; on one stream, whose memory
    goes from hand to hand."""
    x, made = late.x, []
    for source in sources:
        late.write(source)
        first, again = as_tuple(call(x)), as_tuple(call(x))
        made += [one.clone() for one in first + again]
        del first, again
        x.add_(1)
        made += [one.clone() for one in as_tuple(call(x))]
        x.zero_()
        made += [one.clone() for one in as_tuple(call(x))]
    return made


def forked(call, late, sources):
    """A call on a stream of its own between two, and one where both meet."""
    side, main, x = torch.cuda.Stream(), torch.cuda.current_stream(), late.x
    late.write(sources[0])
    made = [one.clone() for one in as_tuple(call(x))]
    other = x.clone()
    side.wait_stream(main)
    with torch.cuda.stream(side):
        aside = [one.clone() for one in as_tuple(call(other))]
    made += [one.clone() for one in as_tuple(call(x))]
    main.wait_stream(side)
    return made + aside + [one.clone() for one in as_tuple(call(other))]


def captured(function, *given):
    function(*given)  # what is packed, looked up and loaded at a first call
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


@pytest.mark.skipif(not hopper(), reason="PyTorch sees no GPU of compute capability 9.0")
@pytest.mark.parametrize("function", [work, forked])
@pytest.mark.parametrize("graph", [False, True], ids=["stream", "graph"])
def test_results_are_the_same(function, graph):
    calls, (tensors,) = calls_of("cuda", 1)
    lates = {x: Late(x) for x in dict.fromkeys(tensors)}
    wrong = []
    for (name, call), x in zip(calls, tensors, strict=True):
        late, sources = lates[x], [x, x.flip(0).contiguous(), x * 0.5]
        noisefloor.set_programmatic_launch(False)
        try:
            wanted = [one.clone() for one in function(call, late, sources)]
            torch.cuda.synchronize()
        finally:
            noisefloor.set_programmatic_launch(True)
        found = captured(function, call, late, sources) if graph else function(call, late, sources)
        torch.cuda.synchronize()
        wrong += [name for one, other in zip(found, wanted, strict=True) if not torch.equal(one.view(torch.uint8), other.view(torch.uint8))]
    assert not wrong
