"""noisefloor.torch.patch: transformer blocks of diffusers, whose residuals are added where a layer is projected."""

from patching import Copies, no_gradients, off, torch  # noqa: F401 - first; a fixture of every test

import noisefloor.torch
import pytest
from changes import CHANGES
from diffusers.models import attention

WIDTH, TOKENS = 32, 6


def block(**more):
    return attention.BasicTransformerBlock(WIDTH, 4, 8, cross_attention_dim=24, **more).eval()


def images():
    return torch.randn(2, TOKENS, WIDTH)


def text(tokens=5):
    return torch.randn(2, tokens, 24)


KINDS = {
    "plain": ({}, text),
    "without text": ({"cross_attention_dim": None}, lambda: None),
    "both over images": ({"double_self_attention": True}, lambda: None),
    "both over text": ({"only_cross_attention": True}, text),
    "gelu": ({"activation_fn": "gelu"}, text),
    "norms without weights": ({"norm_elementwise_affine": False}, text),
    "without biases": ({"ff_bias": False, "attention_out_bias": False}, text),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_adds_no_residual_of_its_own(kind):
    more, keys = KINDS[kind]
    net, x, keys = attention.BasicTransformerBlock(WIDTH, 4, 8, **{"cross_attention_dim": 24, **more}).eval(), images(), keys()
    wanted = net(x, encoder_hidden_states=keys)
    with noisefloor.torch.patch(net) as report:
        with Copies() as seen:
            found = net(x, encoder_hidden_states=keys)
        assert off(found, wanted) < 1e-5 and "add" not in seen.calls
        compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(x, encoder_hidden_states=keys), found)
        assert report.replaced[""] == "BasicTransformerBlock: gemm" and report.fell_back == {}
    assert torch.equal(net(x, encoder_hidden_states=keys), wanted)


def test_along_frames():
    net = attention.TemporalBasicTransformerBlock(WIDTH, WIDTH, 4, 8, 24).eval()
    x, keys = torch.randn(2 * 3, TOKENS, WIDTH), torch.randn(2 * TOKENS, 1, 24)
    wanted = net(x, 3, keys)
    with noisefloor.torch.patch(net) as report, Copies() as seen:
        assert off(net(x, num_frames=3, encoder_hidden_states=keys), wanted) < 1e-5
        assert "add" not in seen.calls and report.replaced[""] == "TemporalBasicTransformerBlock: gemm" and report.fell_back == {}
    net.set_chunk_feed_forward(1)
    with noisefloor.torch.patch(net) as report:
        assert off(net(x, 3, keys), wanted) < 1e-5 and report.fell_back == {"": {"feeding forward in chunks": 1}}
    narrow = attention.TemporalBasicTransformerBlock(WIDTH, 2 * WIDTH, 4, 8, 24).eval()
    with noisefloor.torch.patch(narrow) as report:
        assert report.left == {"": "its frames have another width"}


@pytest.mark.parametrize("more, why", [
    ({"attention_mask": torch.zeros(2, 1, TOKENS)}, "an attention mask"), ({"encoder_attention_mask": torch.zeros(2, 1, 5)}, "an attention mask"),
    ({"cross_attention_kwargs": {"ip_adapter_masks": None}}, "cross_attention_kwargs"), ("chunks", "feeding forward in chunks")])
def test_what_is_asked_otherwise_falls_back(more, why):
    net, x, given = block(), images(), {"encoder_hidden_states": text()} | ({} if more == "chunks" else more)
    with noisefloor.torch.patch(net) as report:
        if more == "chunks":
            net.set_chunk_feed_forward(2, 1)
        found = net(x, **given)
        assert report.fell_back[""] == {why: 1}
    assert off(found, net(x, **given)) < 1e-5


def test_an_attention_that_falls_back_keeps_the_residual():
    net, x, nothing = block(), images(), text(0)
    wanted = net(x, encoder_hidden_states=nothing)
    with noisefloor.torch.patch(net) as report:
        assert off(net(x, encoder_hidden_states=nothing), wanted) < 1e-5
        assert report.fell_back == {name: {"an empty input": 1} for name in ("attn2", "attn2.to_k", "attn2.to_v")}


def test_autocast_over_layers_of_two_types():
    net, x, keys = block(), images(), text()
    net.attn1.to(torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        wanted = net(x, encoder_hidden_states=keys)
        with noisefloor.torch.patch(net):
            assert off(net(x, encoder_hidden_states=keys), wanted) < 1e-2


@pytest.mark.parametrize("more, change, why", [
    ({"norm_type": "ada_norm", "num_embeds_ada_norm": 4}, None, "its norm_type is ada_norm"),
    ({"positional_embeddings": "sinusoidal", "num_positional_embeddings": 9}, None, "it adds places"),
    ({"final_dropout": True}, None, "its ff does not end with a Linear that is replaced"),
    ({}, "another attention", "its attn1 is no Attention of diffusers'"), ({}, "another class", "its attn1 is no Attention of diffusers'"),
    ({}, "another feed-forward", "its ff is no FeedForward of diffusers'"),
    ({}, "forwards of blocks", "its attn1 has its forward replaced, as accelerate's hooks do")])
def test_other_blocks_are_left(more, change, why):
    net = block(**more)
    if change:
        CHANGES[change](net)
    with noisefloor.torch.patch(net) as report:
        assert report.left[""] == why
