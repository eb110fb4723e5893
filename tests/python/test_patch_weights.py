"""noisefloor.torch.patch: weights that change under it, in every way that PyTorch has, are those of the next call."""

import copy
import pickle
import subprocess
import sys

from patching import no_gradients, torch  # noqa: F401 - first; a fixture of every test

import built
import noisefloor.torch
import pytest
from diffusers.models.attention_processor import Attention
from diffusers.models.upsampling import Upsample2D
from noisefloor import _layers, _operators
from torch import nn


class Adapted(nn.Module):
    """Merges what it adds as peft's layers do: into the `.data` of the layer inside."""

    def __init__(self, layer):
        super().__init__()
        self.base_layer, self.delta = layer, torch.randn_like(layer.weight)

    def forward(self, x):
        return self.base_layer(x)

    def merge(self):
        self.base_layer.weight.data += self.delta

    def merge_safely(self):
        merged = self.base_layer.weight.data.clone()
        merged += self.delta
        self.base_layer.weight.data = merged

    def unmerge(self):
        self.base_layer.weight.data -= self.delta


def set_data(layer, new):
    layer.weight.data = new


WAYS = {
    "in place": lambda adapted, layer: layer.weight.mul_(2),
    "data in place": lambda adapted, layer: layer.weight.data.mul_(2),
    "elements of data": lambda adapted, layer: layer.weight.data[1].zero_(),
    "a permutation of data": lambda adapted, layer: layer.weight.data.copy_(layer.weight.data.flip(0)),
    "new data": lambda adapted, layer: set_data(layer, torch.randn(layer.weight.shape)),
    "new data, channels-last": lambda adapted, layer: set_data(layer, torch.randn_like(layer.weight)),
    "a new parameter": lambda adapted, layer: setattr(layer, "weight", nn.Parameter(torch.randn(layer.weight.shape), requires_grad=False)),
    "a state": lambda adapted, layer: layer.load_state_dict({name: one + 1 for name, one in layer.state_dict().items()}),
    "an assigned state": lambda adapted, layer: layer.load_state_dict({name: torch.randn(one.shape) for name, one in layer.state_dict().items()}, assign=True),
    "NumPy": lambda adapted, layer: layer.weight.detach().numpy().__imul__(2),
    "the bias": lambda adapted, layer: layer.bias.data.add_(1),
    "a merge": lambda adapted, layer: adapted.merge(),
    "a safe merge": lambda adapted, layer: adapted.merge_safely(),
    "a merge and back": lambda adapted, layer: (adapted.merge(), layer.weight.data.mul_(3), adapted.unmerge()),
}


@pytest.fixture(params=[False, True], ids=["in scratch", "in kept memory"])
def kept(request, monkeypatch):
    """As on a GPU: what the variant lays out has memory of its own, and the next call finds what the last one left."""
    if request.param:
        monkeypatch.setattr(_layers.Packed, "serves", lambda weight: True)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return request.param


def two_layers():
    """A convolution and one behind an upsample."""
    torch.manual_seed(2)
    return nn.Sequential(Adapted(nn.Conv2d(4, 8, 3, padding=1)), Upsample2D(8, use_conv=True))


@pytest.mark.parametrize("backend", [None, "eager"])
@pytest.mark.parametrize("way", WAYS)
def test_what_is_written_counts_from_the_next_call_on(way, backend, kept):
    net, x = two_layers().requires_grad_(False), torch.randn(2, 4, 6, 5)
    with noisefloor.torch.patch(net) as report:
        assert bool(net[0].base_layer.forward.packed) == bool(net[1].conv.forward.packed) == kept
        call = net if backend is None else torch.compile(net, fullgraph=True, backend=backend)
        before = call(x)
        for layer in (net[0].base_layer, net[1].conv):
            WAYS[way](net[0], layer)
        after = call(x)
        assert report.fell_back == {}
    assert (after - before).abs().max() > 1e-3
    assert torch.allclose(net(x), after, atol=1e-4)


@pytest.mark.parametrize("backend", [None, "aot_eager"])
@pytest.mark.parametrize("make", [lambda: nn.Linear(8, 8), lambda: nn.GroupNorm(2, 8), lambda: nn.LayerNorm(8), lambda: Attention(8, heads=2, dim_head=4)])
def test_other_layers_read_their_own_weights(make, backend):
    """Attention's lie side by side."""
    net, x = make().requires_grad_(False), torch.randn(2, 8, 8)
    layers = (net.to_v, net.to_k) if isinstance(net, Attention) else (net,)
    for way in ("in place", "data in place", "elements of data", "new data", "a new parameter", "a state", "NumPy", *["the bias"] * (layers[0].bias is not None)):
        torch._dynamo.reset()
        with noisefloor.torch.patch(net):
            call = net if backend is None else torch.compile(net, fullgraph=True, backend=backend)
            before = call(x)
            for layer in layers:
                WAYS[way](None, layer)
            after = call(x)
        assert (after - before).abs().max() > 1e-3 and torch.allclose(net(x), after, atol=1e-4), way


def test_weights_that_do_not_change_and_end_as_they_began(kept):
    net, x = two_layers(), torch.randn(2, 4, 6, 5)
    strides, bits = [one.stride() for one in net.parameters()], [one.clone() for one in net.parameters()]
    with noisefloor.torch.patch(net):
        before = net(x)
        net.requires_grad_(False).eval()
        assert torch.equal(net(x), before)
    assert [one.stride() for one in net.parameters()] == strides and all(map(torch.equal, net.parameters(), bits))


def test_the_weights_of_inference_mode():
    with torch.inference_mode():  # whose tensors have no versions
        net, x = nn.Conv2d(4, 8, 3), torch.randn(1, 4, 8, 8)
        with noisefloor.torch.patch(net):
            before = net(x)
            net.weight.mul_(2)
            assert torch.allclose(net(x) - net.bias[:, None, None], 2 * (before - net.bias[:, None, None]), atol=1e-5)


@pytest.mark.parametrize("made_in", [False, True])
def test_a_patch_in_another_mode_than_the_networks(made_in):
    with torch.inference_mode(made_in):
        net, x = nn.Conv2d(4, 8, 3), torch.randn(1, 4, 8, 8)
        wanted = net(x)
    with torch.inference_mode(not made_in), torch.no_grad():
        with noisefloor.torch.patch(net):
            assert torch.allclose(net(x), wanted, atol=1e-5)
    assert net.weight.is_inference() == made_in
    if not made_in:
        with torch.enable_grad():
            net(x).sum().backward()


def test_a_network_that_was_moved_under_a_patch(kept):
    """What was packed is of another element type."""
    net, x = two_layers(), torch.randn(2, 4, 6, 5)
    with noisefloor.torch.patch(net) as report:
        halved = net.bfloat16()(x.bfloat16())
        assert report.fell_back == {} and torch.equal(halved, net(x.bfloat16()))
        double = net.double()(x.double())
        assert set(report.fell_back) == {"0.base_layer", "1", "1.conv"}
    assert torch.allclose(net(x.double()), double)


def test_a_call_that_failed_laid_nothing_out(monkeypatch):
    monkeypatch.setattr(_layers.Packed, "serves", lambda weight: True)
    captures = False
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: captures)
    net = nn.Conv2d(4, 8, 3, padding=1)
    with noisefloor.torch.patch(net), torch.no_grad():
        assert net.forward.packed
        net.weight.mul_(2)
        with pytest.raises(ValueError):
            net(torch.randn(1, 5, 6, 6))
        captures = True
        with pytest.raises(ValueError, match="changed since the last call"):
            net(torch.randn(1, 4, 6, 6))


def test_a_captured_graph_takes_what_the_last_call_left(monkeypatch):
    monkeypatch.setattr(_layers.Packed, "serves", lambda weight: True)
    captures = False
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: captures)
    net, x = two_layers(), torch.randn(2, 4, 6, 5)
    with noisefloor.torch.patch(net):
        memory = [one.arguments["prepared"] for conv in (net[0].base_layer, net[1].conv) for one in conv.forward.packed.values()]
        places, before = [one.data_ptr() for one in memory], [one.clone() for one in memory]
        assert len(memory) == 3
        net[0].base_layer.weight.data.mul_(2)
        net[1].conv.weight.mul_(2)
        captures = True
        with pytest.raises(ValueError, match="the weights of '1' changed since the last call: call the network once before a CUDA graph captures it"):
            net(x)
        captures = False
        net(x)
        changed = [torch.equal(one, old) for one, old in zip(memory, before)]
        assert changed == [False, True, False], "the convolution alone is not called behind an upsample"
        captures = True
        net(x)
        assert places == [one.data_ptr() for one in memory]


def test_a_modules_operators_lay_weights_out_in_each_call():
    x, w, bias = torch.randn(2, 6, 5, 8), torch.randn(16, 3, 3, 8), torch.randn(16)
    handle, call = noisefloor.torch.prepare("conv2d", x.shape, w, bias), _operators.OPERATORS["conv2d"]
    wanted, given = handle(x), {"variant": handle.variant, "prepared": handle.memory}
    handle.memory.zero_()
    assert torch.equal(call(x, w, bias, **given), wanted) and torch.equal(handle(x), wanted)
    w.data.mul_(2)
    assert torch.equal(torch.compile(call, fullgraph=True, backend="aot_eager")(x, w, bias, **given), noisefloor.torch.conv2d(x, w, bias))
    # All but the schema: what the call writes to `prepared` is not declared (noisefloor/_operators.py says why).
    tests = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    handle.memory.zero_()
    torch.library.opcheck(torch.ops.noisefloor.conv2d.of_module, (x, w, bias), given, test_utils=tests)


def test_a_calls_scratch_is_the_next_ones():
    for channels in (8, 32, 16, 64, 8):
        x, w = torch.randn(1, 6, 5, channels), torch.randn(16, 3, 3, channels)
        wanted = torch.nn.functional.conv2d(x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2), padding=1).permute(0, 2, 3, 1)
        assert torch.allclose(noisefloor.torch.conv2d(x, w, bias=False), wanted, atol=1e-4)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))], ids=["deepcopy", "pickle"])
def test_a_copy_has_its_own(copied, kept):
    net, x = two_layers(), torch.randn(2, 4, 6, 5)
    with noisefloor.torch.patch(net):
        before = net(x)
        other = copied(net)
        other[1].conv.weight.data.zero_()
        other(x)
        assert torch.equal(net(x), before)
        net[1].conv.weight.data.mul_(2)
        assert torch.equal(other(x), other[1].conv.bias[:, None, None].expand(2, -1, 12, 10))


def test_a_pickled_one_is_loaded_by_who_imported_nothing(tmp_path):
    net, x = nn.Sequential(nn.Linear(8, 8)), torch.randn(2, 8)
    with noisefloor.torch.patch(net):
        (tmp_path / "net").write_bytes(pickle.dumps((net, x, net(x))))
    script = "import pickle, sys, torch\nnet, x, y = pickle.load(open(sys.argv[1], 'rb'))\nwith torch.no_grad(): assert torch.equal(net(x), y)\nprint(type(net[0].forward).__module__)"
    done = subprocess.run([sys.executable, "-c", f"import sys; sys.path.insert(0, {built.FOLDER!r})\n{script}", str(tmp_path / "net")],
                          capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "noisefloor._layers", done.stderr


@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU")
def test_a_graph_on_a_gpu_sees_what_is_written():
    """Of layers that read their own weights at once; of those that a variant lays out, from the next call outside of the graph on."""
    net = nn.Sequential(nn.Conv2d(4, 64, 3, padding=1), nn.Conv2d(64, 64, 3, padding=1), Upsample2D(64, use_conv=True))
    net, x = net.cuda().to(torch.bfloat16), torch.randn(2, 4, 32, 32, device="cuda", dtype=torch.bfloat16)
    with noisefloor.torch.patch(net) as report:
        if torch.cuda.get_device_capability()[0] == 9:
            assert [len(conv.forward.packed) for conv in (net[0], net[1], net[2].conv)] == [1, 0, 1]
        net(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = net(x)
        for write in (lambda one: one.data.mul_(1.5), lambda one: one.mul_(0.5), lambda one: one.data.copy_(one.data.flip(0))):
            for one in net.parameters():
                write(one)
            eager = net(x)
            graph.replay()
            torch.cuda.synchronize()
            assert torch.equal(captured, eager)
        net[1].bias.data.add_(1)
        graph.replay()
        replayed = captured.clone()
        assert not torch.equal(replayed, eager) and torch.equal(replayed, net(x))
        assert report.fell_back == {}
    unpatched = net(x)
    assert (replayed - unpatched).abs().max() <= 0.05 * unpatched.abs().max()
