"""noisefloor.capture(): the program computes what it did; shares and times of its calls."""

from types import SimpleNamespace

import built  # noqa: F401 - finds the module
import noisefloor
import pytest
from capturing import F, block, found, needs_torch, torch
from noisefloor import _mapping

if torch is not None:
    from noisefloor import _capture


@needs_torch
def test_what_is_computed_stays_the_same():
    (forward, parameters), x = block(), torch.randn(2, 4, 6, 5)
    wanted = forward(x)
    gradients = torch.autograd.grad(wanted.square().sum(), parameters)
    with noisefloor.capture() as capture:
        y = forward(x)
    forwards = found(capture)
    assert torch.equal(y, wanted) and all(map(torch.equal, torch.autograd.grad(y.square().sum(), parameters), gradients))
    y = forward(x)
    with noisefloor.capture() as backward:  # under any dispatch mode PyTorch rounds some gradients otherwise
        found_gradients = torch.autograd.grad(y.square().sum(), parameters)
    assert all(torch.allclose(one, other, atol=1e-4) for one, other in zip(found_gradients, gradients))
    assert {"convolution_backward", "native_group_norm_backward"} < {group.what[0] for group in backward.unmapped()}
    for mode in (torch.no_grad, torch.inference_mode):
        with mode(), noisefloor.capture() as capture:
            assert torch.allclose(forward(x), wanted)
        assert found(capture) == forwards
    with torch.no_grad(), noisefloor.capture() as capture:
        assert torch.allclose(torch.compile(forward, backend="aot_eager")(x), wanted)
    assert found(capture) == forwards
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), noisefloor.capture() as capture:
        forward(x)
    types = {group.what.op: group.what.dtype for group in capture.problems()}
    assert (types["conv2d"], types["gemm"], types["attention"]) == ("bf16",) * 3


@needs_torch
def test_an_error_passes_and_ends_the_capture():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), noisefloor.capture() as capture:
        torch.ones(2, 8) @ torch.ones(4, 8)
    torch.ones(2) + torch.ones(2)
    assert not capture.calls and "nothing was called" in str(capture)
    with pytest.raises(RuntimeError, match="entered once"), capture:
        pass


@needs_torch
def test_a_form_that_it_cannot_read_is_named_and_computed(monkeypatch):
    monkeypatch.setitem(_mapping.RULES, "silu", lambda *_: 1 // 0)
    with noisefloor.capture() as capture:
        y = F.silu(torch.ones(2, 8))
    assert torch.equal(y, F.silu(torch.ones(2, 8)))
    assert found(capture) == ["silu: noisefloor cannot read this call (ZeroDivisionError: integer division or modulo by zero)"]


@needs_torch
def test_fake_tensors_have_problems_and_no_time():
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode(), noisefloor.capture() as capture:
        F.linear(torch.empty(6, 8, device="cuda"), torch.empty(4, 8, device="cuda"))
    assert found(capture) == ["gemm m=6,n=4,k=8,bias=0"] and capture.coverage()["seconds"] is None


@needs_torch
def test_shares_are_of_calls_and_operations():
    with torch.no_grad(), noisefloor.capture() as capture:
        torch.nn.Linear(8, 4)(torch.ones(6, 8)).tanh()
        torch.bmm(torch.ones(2, 3, 8), torch.ones(2, 8, 4))
    linear, tanh, bmm = capture.calls[-3:]  # before them: what makes the layer's weights
    assert (linear.flops, tanh.flops, bmm.flops) == (2 * 6 * 4 * 8, 24, 2 * 2 * 3 * 8 * 4)
    capture.calls = capture.calls[-3:]
    assert capture.coverage() == {"calls": 1 / 3, "flops": 384 / (384 + 24 + 384), "seconds": None}
    assert "mapped: 33.33 % of 3 calls, 48.48 % of 792 FLOPs\n" in str(capture) and "48.48  bmm: gemm has no batch of matrices" in str(capture)


@needs_torch
def test_time_is_that_between_events(monkeypatch):
    clock = iter(range(0, 1000, 10))
    marks = []

    def mark(tensors):
        marks.append(SimpleNamespace(at=next(clock)))
        marks[-1].elapsed_time = lambda end, begin=marks[-1]: end.at - begin.at
        return marks[-1]

    monkeypatch.setattr(_capture, "mark", mark)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: marks.append("synchronised"))
    with noisefloor.capture() as capture:
        x = torch.ones(4, 8)
        assert "synchronised" not in marks
        F.silu(x), x.tanh(), x.tanh()
    assert [call.seconds for call in capture.calls] == [0.01] * 3 and marks[-1] == "synchronised"
    assert capture.coverage()["seconds"] == pytest.approx(1 / 3) and "33.33 % of 0.03 s on the GPU" in str(capture)


@needs_torch
def test_events_are_of_the_tensors_gpu_outside_of_graphs(monkeypatch):
    on = [SimpleNamespace(device=torch.device("cpu")), SimpleNamespace(device=torch.device("cuda", 1))]
    recorded = []
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: SimpleNamespace(record=recorded.append))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    for capturing, streams in ((True, []), (False, ["stream of cuda:1"])):
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda capturing=capturing: capturing)
        assert (_capture.mark(on) is None) == capturing and recorded == streams
    assert _capture.mark(on[:1]) is None


@pytest.mark.skipif(torch is None or not torch.cuda.is_available(), reason="PyTorch sees no GPU")
def test_a_gpu_has_times_and_the_problems_of_meta():
    torch.nn.Linear(8, 8, device="cuda")(torch.ones(8, 8, device="cuda"))  # the library's own start
    said = []
    for device in ("meta", "cuda"):
        layers = [torch.nn.Conv2d(4, 32, 3, padding=1), torch.nn.GroupNorm(8, 32), torch.nn.SiLU(), torch.nn.Flatten(2), torch.nn.Linear(64, 64)]
        network = torch.nn.Sequential(*layers).to(device)
        x = torch.ones(2, 4, 8, 8, device=device)
        with torch.no_grad(), noisefloor.capture() as capture:
            q = network(x).unflatten(1, (4, 8))
            F.scaled_dot_product_attention(q, q, q)
        said.append(found(capture))
    assert said[0] == said[1] and all(call.seconds > 0 for call in capture.calls) and capture.coverage()["seconds"] == 1
