"""noisefloor.torch.patch: what PyTorch takes, a patched network takes, and says where PyTorch computed it."""

from patching import diffusers, no_gradients, torch  # noqa: F401 - first; a fixture of every test

import noisefloor.torch
import pytest
from diffusers.models.attention import FeedForward
from diffusers.models.attention_processor import Attention
from diffusers.models.resnet import ResnetBlock2D
from diffusers.models.upsampling import Upsample2D
from noisefloor import _operators
from torch import nn

TYPE, EMPTY = "an element type that is not the weights', or that no op takes", "an empty input"
IMAGES = "more than 32767 images"


def axes(n):
    return f"an input of {n} axes"


def later(*shape):
    """A view that begins where its memory does not."""
    return torch.randn(shape[0] + 1, *shape[1:])[1:]


def behind(*shape):
    """Dense, one element into its memory."""
    return torch.randn(torch.Size(shape).numel() + 1)[1:].reshape(shape)


# Of each layer: what it is called with, and why PyTorch computes that; None where the op does.
LAYERS = {
    "conv": (lambda: nn.Conv2d(4, 8, 3, padding=1), [
        (lambda: torch.randn(2, 4, 5, 5), None), (lambda: later(1, 4, 5, 5), None), (lambda: behind(1, 4, 5, 5), None),
        (lambda: behind(1, 5, 5, 4).permute(0, 3, 1, 2), None), (lambda: torch.randn(2, 4, 5, 10)[..., ::2], None),
        (lambda: torch.randn(0, 4, 5, 5), EMPTY), (lambda: torch.randn(4, 5, 5), axes(3)), (lambda: torch.randn(32768, 4, 1, 1), IMAGES)]),
    "linear": (lambda: nn.Linear(3, 8), [
        (lambda: later(4, 3), None), (lambda: torch.randn(3), None), (lambda: torch.randn(2, 2, 2, 2, 2, 2, 2, 2, 3), None), (lambda: torch.randn(3, 4).T, None),
        (lambda: torch.randn(1, 3).expand(5, 3), None), (lambda: torch.randn(0, 3), EMPTY), (lambda: torch.randn(2, 0, 3), EMPTY)]),
    "narrow linear": (lambda: nn.Linear(1, 1), [(lambda: torch.ones(1, 1).expand((1 << 24) + 1, 1), "more than 16777216 rows")]),
    "group norm": (lambda: nn.GroupNorm(2, 4), [
        (lambda: later(2, 4, 3), None), (lambda: torch.randn(2, 4), None), (lambda: torch.randn(2, 4, 2, 3, 2), None), (lambda: torch.randn(0, 4, 3), EMPTY),
        (lambda: torch.randn(32768, 4, 3), IMAGES)]),
    "layer norm": (lambda: nn.LayerNorm(3), [(lambda: later(4, 3), None), (lambda: torch.randn(3), None), (lambda: torch.randn(0, 3), EMPTY)]),
    "layer norm without weights": (lambda: nn.LayerNorm(3, elementwise_affine=False), [
        (lambda: later(4, 3), None), (lambda: torch.randn(2, 0, 3), EMPTY), (lambda: torch.randn(4, 3).double(), TYPE)]),
    "weights behind": (lambda: with_weights_behind(nn.Linear(3, 5)), [(lambda: torch.randn(2, 3), None)]),
}


def with_weights_behind(layer):
    """As views into one tensor of all weights."""
    for one in layer.parameters():
        one.data = behind(*one.shape).copy_(one)
    return layer


def near(got, wanted):
    return got.dtype == wanted.dtype and got.shape == wanted.shape and torch.allclose(got, wanted, atol=1e-4)


@pytest.mark.parametrize("backend", [None, "eager", "aot_eager"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_takes_what_it_took(name, backend):
    make, calls = LAYERS[name]
    for given, why in calls:
        torch.manual_seed(3)
        net, x = nn.Sequential(make(), nn.Identity()), given()
        wanted = net(x)
        with noisefloor.torch.patch(net) as report:
            call = net if backend is None else torch.compile(net, fullgraph=True, backend=backend)
            assert near(call(x), wanted) and near(call(x), wanted), (why, x.shape)
            # Of what is compiled, a reason counts when it is.
            assert report.fell_back == ({} if why is None else {"0": {why: 2 if backend is None else 1}}), x.shape
        torch._dynamo.reset()


@pytest.mark.parametrize("backend", [None, "aot_eager"])
def test_a_modules_operators_take_tensors_at_any_address(backend):
    """What is compiled for an aligned tensor is called with others of its shape: PyTorch does not ask for addresses."""
    def call(x, w, bias):
        return _operators.OPERATORS["gemm"](x, w, bias)

    compiled = call if backend is None else torch.compile(call, fullgraph=True, backend=backend)
    for tensors in (lambda n, *shape: torch.randn(n + 1, *shape)[:n], lambda n, *shape: torch.randn(n + 1, *shape)[1:]):
        x, w, bias = tensors(4, 3), tensors(8, 3), tensors(8)
        assert torch.allclose(compiled(x, w, bias), torch.nn.functional.linear(x, w, bias), atol=1e-5)
    assert x.data_ptr() % 16 and w.data_ptr() % 16 and bias.data_ptr() % 16
    with pytest.raises(ValueError, match="gemm: 'a' must begin at a multiple of 16 bytes"):
        noisefloor.torch.gemm(x, w, bias)


def test_one_compiled_network_takes_all_in_turn():
    net = nn.Sequential(nn.Linear(3, 8))
    calls = [torch.randn(4, 3), later(4, 3), torch.randn(0, 3), torch.randn(4, 3), torch.randn(5, 3), later(6, 3), torch.randn(0, 3)]
    wanted = [net(x) for x in calls]
    with noisefloor.torch.patch(net) as report:
        call = torch.compile(net, fullgraph=True, backend="aot_eager")
        assert all(near(call(x), right) for x, right in zip(calls, wanted)) and report.fell_back == {"0": {EMPTY: 1}}


@pytest.mark.parametrize("make, x", [
    (lambda: nn.Conv2d(4, 8, 3), torch.randn(5, 5)), (lambda: nn.Conv2d(4, 8, 3), torch.randn(1, 4, 0, 5)), (lambda: nn.Conv2d(4, 8, 3), torch.randn(1, 4, 5, 5).double()),
    (lambda: nn.Linear(3, 8), torch.randn(())), (lambda: nn.Linear(3, 8), torch.randn(2, 3).half()), (lambda: nn.GroupNorm(2, 4), torch.randn(4)),
    (lambda: nn.LayerNorm(3, elementwise_affine=False), torch.randn(2, 4))])
def test_what_pytorch_refuses_it_refuses_in_its_words(make, x):
    net = make()
    with pytest.raises((RuntimeError, ValueError)) as plain:
        net(x)
    with noisefloor.torch.patch(net), pytest.raises(type(plain.value)) as patched:
        net(x)
    assert str(patched.value) == str(plain.value)


def test_a_layer_takes_its_input_by_name():
    for make, given in LAYERS.values():
        net, x = make(), given[0][0]()
        wanted = net(input=x)
        with noisefloor.torch.patch(net):
            assert near(net(input=x), wanted)


def test_sparse_and_nested_inputs():
    net = nn.Linear(3, 8)
    nested = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)])
    wanted = net(torch.eye(3).to_sparse()), net(nested)
    with noisefloor.torch.patch(net) as report:
        assert near(net(torch.eye(3).to_sparse()), wanted[0]) and all(map(near, net(nested).unbind(), wanted[1].unbind()))
        assert report.fell_back == {"": {"an input that is not dense": 2}}
        assert "(the module itself): fell back 2 times, an input that is not dense" in str(report)


def resnet():
    return ResnetBlock2D(in_channels=8, out_channels=16, temb_channels=8, groups=4), lambda n: (torch.randn(n, 8, 6, 6), torch.randn(n, 8))


def upsampler():
    return Upsample2D(8, use_conv=True), lambda n: (torch.randn(n, 8, 6, 6),)


def feed_forward(activation):
    return FeedForward(8, activation_fn=activation), lambda n: (torch.randn(n, 3, 8),)


BLOCKS = {"resnet": resnet, "upsampler": upsampler, "geglu": lambda: feed_forward("geglu"), "gelu": lambda: feed_forward("gelu")}


@pytest.mark.parametrize("backend", [None, "aot_eager"])
@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_takes_what_it_took(name, backend):
    net, given = BLOCKS[name]()
    empty, *calls = given(0), given(2), [later(*one.shape) for one in given(1)]
    wanted = [net(*call) for call in (empty, *calls)]
    with noisefloor.torch.patch(net) as report:
        called = net if backend is None else torch.compile(net, fullgraph=True, backend=backend)
        assert near(called(*empty), wanted[0]) and {why for reasons in report.fell_back.values() for why in reasons} == {EMPTY}
        before = report.fell_back
        assert all(near(called(*call), right) for call, right in zip(calls, wanted[1:])) and report.fell_back == before


@pytest.mark.parametrize("linear", [False, True])
def test_a_transformer_of_many_images(linear):
    net = diffusers.Transformer2DModel(num_attention_heads=2, attention_head_dim=4, in_channels=8, norm_num_groups=4, use_linear_projection=linear)
    x = torch.randn(32768, 8, 1, 1)
    wanted = net(x).sample
    with noisefloor.torch.patch(net) as report:
        assert near(net(x).sample, wanted) and report.fell_back[""] == {IMAGES: 1}


@pytest.mark.parametrize("backend", [None, "aot_eager"])
def test_an_attention_over_nothing_and_under_a_mask(backend):
    net = Attention(8, cross_attention_dim=12, heads=2, dim_head=4)
    x, text, mask = torch.randn(2, 5, 8), torch.randn(2, 7, 12), torch.zeros(2, 1, 7)
    wanted = net(x, text[:, :0]), net(x, text, attention_mask=mask)
    with noisefloor.torch.patch(net) as report:
        call = net if backend is None else torch.compile(net, fullgraph=True, backend=backend)
        assert torch.equal(call(x, text[:, :0]).isnan(), wanted[0].isnan()) and near(call(x, text, attention_mask=mask), wanted[1])
        assert report.fell_back[""] == {EMPTY: 1, "an attention mask": 1}


def test_what_fell_back_stays_in_the_report():
    net = nn.Sequential(nn.Linear(3, 8), nn.Linear(8, 3))
    with noisefloor.torch.patch(net) as report:
        net(torch.randn(0, 3))
        assert "  1: fell back 1 times, an empty input" in str(report).splitlines()
    assert report.fell_back == {"0": {EMPTY: 1}, "1": {EMPTY: 1}}
    net(torch.randn(0, 3))
    assert report.fell_back == {"0": {EMPTY: 1}, "1": {EMPTY: 1}}
