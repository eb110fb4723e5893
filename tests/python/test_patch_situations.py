"""noisefloor.torch.patch: whatever is done to a network before, under or behind it, it computes what it computes unpatched, and undo leaves nothing."""

import copy
import warnings

from patching import diffusers, no_gradients, torch  # noqa: F401 - first; a fixture of every test

import noisefloor.torch
import pytest
import stand_ins
from changes import CHANGES, GO_ON, REFUSED
from diffusers.models.attention import BasicTransformerBlock
from diffusers.models.resnet import ResnetBlock2D
from torch import nn

WIDTH = 8


def u_net():
    return diffusers.UNet2DConditionModel(
        sample_size=8, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), cross_attention_dim=WIDTH,
        attention_head_dim=4, block_out_channels=(WIDTH, 2 * WIDTH), layers_per_block=1, norm_num_groups=4)


def resnet_block():
    return ResnetBlock2D(in_channels=WIDTH, out_channels=WIDTH, temb_channels=None, groups=4)


NETWORKS = {
    "U-Net": (u_net, lambda: (torch.randn(2, 4, 8, 8), torch.tensor(7), torch.randn(2, 5, WIDTH))),
    "resnet": (resnet_block, lambda: (torch.randn(2, WIDTH, 6, 6), None)),
    "block": (lambda: BasicTransformerBlock(WIDTH, 2, 4, cross_attention_dim=WIDTH), lambda: (torch.randn(2, 5, WIDTH), None, torch.randn(2, 4, WIDTH))),
}


@pytest.fixture(autouse=True)
def quietly():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def made(network):
    torch.manual_seed(5)
    make, inputs = NETWORKS[network]
    net, given = make().eval().requires_grad_(False), inputs()
    for one in net.parameters():
        if one.ndim == 1:
            nn.init.normal_(one, 1, 0.2)
    return net, given


def called(net, given):
    kind = next((one.dtype for one in net.parameters() if one.device.type != "meta"), torch.float32)
    given = [one.to(kind) if torch.is_tensor(one) and one.is_floating_point() and kind is torch.float64 else one for one in given]
    more = {"added_cond_kwargs": {"image_embeds": [net._images]}} if hasattr(net, "_images") else {}
    try:
        made = net(*given, **more)
    except (RuntimeError, ValueError, TypeError, AttributeError) as error:
        return error
    return made.sample if hasattr(made, "sample") else made


def same(got, wanted):
    """The numbers, or that both are refused."""
    if isinstance(wanted, Exception):
        return isinstance(got, Exception)
    off = 3e-2 if wanted.dtype is torch.bfloat16 else 1e-3
    return torch.is_tensor(got) and got.shape == wanted.shape and got.dtype == wanted.dtype and torch.allclose(got, wanted, rtol=off, atol=off)


def reaches(module):
    """What a call of it runs: its class's own function, or another's."""
    entry = module.__dict__.get("forward")
    if type(entry).__module__.startswith("noisefloor."):
        return "ours" if entry.active else "own"
    return "own" if entry is None or getattr(entry, "__func__", None) is type(module).forward else "another's"


def state(net):
    """Of each module: all that a change or patch may leave, but for what a hook that was removed leaves bound."""
    return {name: ([kind for kind in type(one).__mro__ if not kind.__name__.startswith("Parametrized")], sorted(set(one.__dict__) - {"forward", "_diffusers_hook"}), reaches(one), list(map(len, (one._forward_hooks, one._forward_pre_hooks))),
                   list(one._modules), type(getattr(one, "processor", None)), one.training,
                   {key: None if weight is None else (weight.dtype, weight.device.type) for key, weight in one._parameters.items()}) for name, one in net.named_modules()}


def owned(net):
    """Parameters by their names and how they lie."""
    return {name: (id(one), one.stride()) for name, one in net.named_parameters()}


@pytest.mark.parametrize("network", ["U-Net", "block"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_change(name, network):
    def changed(net):
        torch.manual_seed(9)
        return CHANGES[name](net) or (lambda: None)

    (plain, given), backs = made(network), []
    try:
        first, start, own = state(plain), called(plain, given), owned(plain)
        backs.append(changed(plain))
        wanted = called(plain, given)
        assert name in REFUSED or torch.is_tensor(wanted), wanted
        backs.pop()()
        restored, ending, kept = called(plain, given), state(plain), owned(plain) == own
        for order in ("patch change undo back", "patch change back undo", "change patch undo back"):
            net, _ = made(network)
            own, now = owned(net), start
            assert state(net) == first
            for step in order.split():
                if step == "patch":
                    report = noisefloor.torch.patch(net)
                elif step == "change":
                    backs.append(changed(net))
                    now = wanted
                elif step == "undo":
                    report.undo()
                else:
                    backs.pop()()
                    now = restored
                assert same(called(net, given), now), (order, step, report)
            if order.startswith("patch change undo"):
                assert not report.fell_back if name in GO_ON else same(wanted, start) or report.fell_back
            assert state(net) == ending and (owned(net) == own) >= kept, order
    finally:
        for back in backs:
            back()


def test_what_was_compiled_sees_each_step():
    net, given = made("resnet")
    start, call = called(net, given), torch.compile(net, fullgraph=True, backend="eager")
    assert same(call(*given), start)
    with noisefloor.torch.patch(net) as report:
        assert torch.equal(call(*given), net(*given)) and report.fell_back == {}
        back = CHANGES["padding_mode"](net)
        wanted = copy.deepcopy(net)(*given)
        assert same(call(*given), wanted) and not same(wanted, start) and report.fell_back
        back()
        assert torch.equal(call(*given), net(*given))
    assert torch.equal(call(*given), start)


def test_each_reason_is_said_once():
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3))
    with noisefloor.torch.patch(net) as report, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        CHANGES["padding_mode"](net)
        for _ in range(3):
            net(torch.randn(1, 3, 8, 8))
        assert len(said) == 1 and "padding_mode" in str(said[0].message) and "'0'" in str(said[0].message)
        assert {name: sum(reasons.values()) for name, reasons in report.fell_back.items()} == {"0": 3, "1": 3}


def test_a_network_whose_hooks_were_removed_is_patched():
    """They leave what they kept as `forward`: the bound function of the class, or of a patch that was undone."""
    net, given = made("resnet")
    stand_ins.offload(net)()
    before = {name: vars(one).get("forward") for name, one in net.named_modules()}
    with noisefloor.torch.patch(net) as report:
        assert report.left == {} and (back := stand_ins.offload(net))
    back()
    start = called(net, given)
    with noisefloor.torch.patch(net) as again:
        assert again.replaced == report.replaced and same(called(net, given), start) and again.fell_back == {}
    other, _ = made("resnet")
    back = stand_ins.offload(other)
    back()
    report = noisefloor.torch.patch(other)
    report.undo()
    assert {name: getattr(vars(one).get("forward"), "__func__", None) for name, one in other.named_modules()} == {
        name: getattr(kept, "__func__", None) for name, kept in before.items()}


def test_a_patched_layer_looks_like_itself():
    import inspect

    layer = nn.Linear(3, 4)
    wanted = inspect.signature(layer.forward)
    with noisefloor.torch.patch(layer):
        assert type(layer) is nn.Linear and type(layer)(4, 2)(layer(torch.ones(1, 3))).shape == (1, 2) and inspect.signature(layer.forward) == wanted
        state = layer.state_dict()
    assert list(state) == ["weight", "bias"] and not [key for key in vars(layer) if key == "forward"]
