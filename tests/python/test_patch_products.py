"""noisefloor.torch.patch: attention's projections as one product, of weights that lie side by side."""

import copy

from patching import no_gradients, torch  # noqa: F401 - first; a fixture of every test

import noisefloor.torch
import pytest
from diffusers.models.attention_processor import Attention
from noisefloor import _operators, _products


def attention(cross=None, **more):
    torch.manual_seed(3)
    made = Attention(query_dim=16, cross_attention_dim=cross, heads=2, dim_head=8, **more)
    return made, [torch.randn(2, 5, 16)] + ([] if cross is None else [torch.randn(2, 7, cross)])


def off(got, wanted):
    return float((got - wanted).abs().max())


@pytest.fixture
def products(monkeypatch):
    """How many layers each product had."""
    taken, product = [], _operators.OPERATORS["products"]
    monkeypatch.setitem(_operators.OPERATORS, "products", lambda a, weights: taken.append((len(weights), _products.are_side_by_side(weights))) or product(a, weights))
    return taken


CASES = {"self": ({}, 3), "cross": ({"cross": 24}, 2), "cross of one width": ({"cross": 16}, 2)}


@pytest.mark.parametrize("case", CASES)
def test_layers_that_share_their_input_are_one_product(case, products):
    options, together = CASES[case]
    attn, inputs = attention(**options)
    wanted, before = attn(*inputs), {name: one.clone() for name, one in attn.state_dict().items()}
    with noisefloor.torch.patch(attn) as report:
        assert off(attn(*inputs), wanted) < 1e-5 and products == [(together, True)] and report.fell_back == {}
        assert all(torch.equal(one, before[name]) for name, one in attn.state_dict().items())
    layers = attn.to_q, attn.to_k, attn.to_v
    assert len({layer.weight.untyped_storage().data_ptr() for layer in layers}) == 3
    assert off(attn(*inputs), wanted) == 0


@pytest.mark.parametrize("why", ["bias", "hooks", "one layer twice", "an adapter since"])
def test_layers_that_cannot_be_one_are_called(why, products):
    attn, inputs = attention(**({"bias": True} if why == "bias" else {}))
    called = []
    if why == "hooks":
        for layer in (attn.to_k, attn.to_v):
            layer.register_forward_hook(lambda *_: called.append(1))
    if why == "one layer twice":
        attn.to_v = attn.to_k
    wanted = attn(*inputs)
    with noisefloor.torch.patch(attn):
        if why == "an adapter since":
            attn.to_k = torch.nn.Sequential(attn.to_k)
        assert off(attn(*inputs), wanted) < 1e-5 and products == []
    assert len(called) == (4 if why == "hooks" else 0)


def test_a_copy_and_a_file_have_every_weight(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    attn, inputs = attention()
    with noisefloor.torch.patch(attn):
        wanted = attn(*inputs)
        assert off(copy.deepcopy(attn)(*inputs), wanted) < 1e-6
        safetensors.save_file(attn.state_dict(), tmp_path / "attn.safetensors")
        torch.save(attn.state_dict(), tmp_path / "attn.pt")
        attn.to(torch.float64).to(torch.float32)  # which gives each its own memory
        assert off(attn(*inputs), wanted) < 1e-6
    for state in (safetensors.load_file(tmp_path / "attn.safetensors"), torch.load(tmp_path / "attn.pt")):
        other, _ = attention()
        torch.nn.init.zeros_(other.to_k.weight)
        other.load_state_dict(state)
        assert off(other(*inputs), wanted) < 1e-5


def test_the_operator_is_one_of_pytorchs():
    a, weights = torch.randn(6, 16), list(torch.randn(32, 16).split(8))
    apart = [weight.clone() for weight in weights]
    operator = torch.ops.noisefloor.products_of_modules.default
    assert _products.are_side_by_side(weights) and not _products.are_side_by_side(apart)
    wanted = torch.stack([a @ weight.T for weight in weights])
    for given in (weights, apart):
        assert off(operator(a, given), wanted) < 1e-4
        torch.library.opcheck(operator, (a, given))
    with torch.enable_grad():
        leaves = [one.clone().requires_grad_() for one in (a, *weights)]
        sums = _operators.OPERATORS["products"](leaves[0], leaves[1:])
        given = torch.randn_like(sums)
        rights = torch.autograd.grad(torch.stack([leaves[0] @ weight.T for weight in leaves[1:]]), leaves, given)
        assert all(off(got, right) < 1e-5 for got, right in zip(torch.autograd.grad(sums, leaves, given), rights))
