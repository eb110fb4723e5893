"""noisefloor.torch.patch: transformer blocks of diffusers, whose residuals are added where a layer is projected."""

import built  # noqa: F401 - first
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
attention = pytest.importorskip("diffusers.models.attention", reason="diffusers is not installed")
import noisefloor.torch  # noqa: E402
from diffusers.models.attention_processor import AttnProcessor  # noqa: E402
from test_patch import Copies, off  # noqa: E402

WIDTH, TOKENS = 32, 6


@pytest.fixture(autouse=True)
def no_gradients():
    torch.manual_seed(3)
    with torch.no_grad():
        yield


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


def asked_otherwise(net, how):
    """(what a call takes beside x, why the block falls back)."""
    keys = {"encoder_hidden_states": text()}
    if how == "mask":
        return {**keys, "attention_mask": torch.zeros(2, 1, TOKENS)}, "an attention mask"
    if how == "mask of text":
        return {**keys, "encoder_attention_mask": torch.zeros(2, 1, 5)}, "an attention mask"
    if how == "kwargs":
        return {**keys, "cross_attention_kwargs": {"ip_adapter_masks": None}}, "cross_attention_kwargs"
    if how == "chunks":
        net.set_chunk_feed_forward(2, 1)
        return keys, "feeding forward in chunks"
    if how == "processor":
        net.attn2.processor = AttnProcessor()
        return keys, "its attn2 has another processor since patch: AttnProcessor"
    if how == "hook":
        net.ff.register_forward_hook(lambda module, given, made: 2 * made)
        return keys, "its ff has hooks, which would not be called"
    if how == "forward":
        inner = net.attn2.forward
        net.attn2.forward = lambda *args, **kwargs: 2 * inner(*args, **kwargs)
        return keys, "its attn2 has its forward replaced, as accelerate's hooks do"
    raise ValueError(how)


@pytest.mark.parametrize("how", ["mask", "mask of text", "kwargs", "chunks", "processor", "hook", "forward"])
def test_what_is_asked_otherwise_falls_back(how):
    net, x = block(), images()
    with noisefloor.torch.patch(net) as report:
        given, why = asked_otherwise(net, how)
        found = net(x, **given)
        assert report.fell_back[""] == {why: 1}
    assert off(found, net(x, **given)) < 1e-5


def test_an_attention_that_falls_back_keeps_the_residual():
    net, x, nothing = block(), images(), text(0)
    wanted = net(x, encoder_hidden_states=nothing)
    with noisefloor.torch.patch(net) as report:
        assert off(net(x, encoder_hidden_states=nothing), wanted) < 1e-5
        assert report.fell_back == {name: {"an empty input": 1} for name in ("attn2", "attn2.to_k", "attn2.to_v")}


def changed(net, change):
    """A change to a layer that a block would compute in a product, or that a block's formula would miss."""
    out, dropout = net.attn1.to_out
    if change == "adapter":
        net.attn1.to_out[0] = torch.nn.Sequential(out, torch.nn.Linear(WIDTH, WIDTH))
    elif change == "layer":
        net.ff.net[2] = torch.nn.Linear(4 * WIDTH, WIDTH)
    elif change == "hook":
        out.register_forward_hook(lambda module, given, made: 2 * made)
    elif change == "dropout's forward":
        dropout.forward = lambda made: 2 * made
    elif change == "scaled":
        net.attn1.rescale_output_factor = 0.5
    elif change == "dropout":
        net.train()
        net.ff.net[1].p = dropout.p = 1e-9  # which drops nothing here
    elif change == "identity":
        net.ff.net[1] = torch.nn.Identity()
    elif change == "norm":
        net.norm1 = torch.nn.Identity()
    elif change == "attention":
        class Twice(type(net.attn1)):
            def forward(self, *args, **kwargs):
                return 2 * super().forward(*args, **kwargs)
        net.attn1.__class__ = Twice
    elif change == "attention's forward":
        inner = net.attn1.forward
        net.attn1.forward = lambda *args, **kwargs: 2 * inner(*args, **kwargs)
    elif change == "another attention":
        net.attn1 = Doubles(WIDTH)
    else:
        net.ff = Doubles(WIDTH)


class Doubles(torch.nn.Linear):
    def __init__(self, width):
        super().__init__(width, width)

    def forward(self, x, *args, **kwargs):
        return 2 * super().forward(x)


LEFT = {"attention": "its attn1 is no Attention of diffusers'", "another attention": "its attn1 is no Attention of diffusers'",
        "another ff": "its ff is no FeedForward of diffusers'",
        "attention's forward": "its attn1 has its forward replaced, as accelerate's hooks do"}
CHANGES = ["adapter", "hook", "dropout's forward", "scaled", "dropout", "identity", "norm", "attention", "attention's forward", "another attention", "another ff"]


@pytest.mark.parametrize("change", CHANGES)
def test_a_layer_that_is_not_plain_is_called(change):
    net, x, keys = block(), images(), text()
    changed(net, change)
    wanted = net(x, encoder_hidden_states=keys)
    with noisefloor.torch.patch(net) as report:
        assert off(net(x, encoder_hidden_states=keys), wanted) < 1e-5
        assert report.left.get("") == LEFT.get(change) and report.fell_back == {}


@pytest.mark.parametrize("change", ["adapter", "layer", "hook", "dropout's forward", "scaled"])
def test_a_layer_that_is_changed_since_is_called(change):
    net, x, keys = block(), images(), text()
    with noisefloor.torch.patch(net) as report:
        changed(net, change)
        found = net(x, encoder_hidden_states=keys)
        assert "" in report.replaced and report.fell_back == {}
    assert off(found, net(x, encoder_hidden_states=keys)) < 1e-5


def test_autocast_over_layers_of_two_types():
    net, x, keys = block(), images(), text()
    net.attn1.to(torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        wanted = net(x, encoder_hidden_states=keys)
        with noisefloor.torch.patch(net):
            assert off(net(x, encoder_hidden_states=keys), wanted) < 1e-2


@pytest.mark.parametrize("more, why", [({"norm_type": "ada_norm", "num_embeds_ada_norm": 4}, "its norm_type is ada_norm"),
                                       ({"positional_embeddings": "sinusoidal", "num_positional_embeddings": 9}, "it adds places"),
                                       ({"final_dropout": True}, "its ff does not end with a Linear that is replaced")])
def test_other_blocks_are_left(more, why):
    with noisefloor.torch.patch(block(**more)) as report:
        assert report.left[""] == why
