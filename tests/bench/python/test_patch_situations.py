"""noisefloor.torch.patch: whatever is done to a network before, under or behind it, it computes what it computes unpatched, and undo leaves nothing.

Each change runs on stand-ins, with PyTorch alone, and on the packages themselves where they are installed.
"""

import copy
import warnings

import built  # noqa: F401 - first
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import noisefloor.torch  # noqa: E402
import stand_ins  # noqa: E402
from stand_ins import Adapted, AttnProcessor2_0, Processor, adapt, cast, offload, wrap  # noqa: E402
from torch import nn  # noqa: E402

WIDTH = 8


class Convolutions(nn.Module):
    """Layers, and blocks that compute layers without calling them."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, WIDTH, 3, padding=1), nn.GroupNorm(2, WIDTH)
        self.block, self.up, self.last = stand_ins.ResnetBlock2D(WIDTH), stand_ins.Upsample2D(WIDTH), stand_ins.UNet(WIDTH)

    def forward(self, x):
        return self.last(self.up(self.block(self.norm(self.first(x)))))


class Attentions(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.blocks = nn.Linear(3, WIDTH), nn.ModuleList([stand_ins.BasicTransformerBlock(WIDTH) for _ in range(2)])

    def forward(self, x, text=None):
        x = self.first(x)
        for block in self.blocks:
            x = block(x, encoder_hidden_states=text)
        return x


def u_net():
    diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed")
    return diffusers.UNet2DConditionModel(
        sample_size=8, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), cross_attention_dim=WIDTH,
        attention_head_dim=4, block_out_channels=(WIDTH, 2 * WIDTH), layers_per_block=1, norm_num_groups=4)


def transformer_block():
    attention = pytest.importorskip("diffusers.models.attention", reason="diffusers is not installed")
    return attention.BasicTransformerBlock(WIDTH, 2, 4, cross_attention_dim=WIDTH)


NETWORKS = {
    "convolutions": (Convolutions, lambda: (torch.randn(2, 3, 6, 6),)),
    "attentions": (Attentions, lambda: (torch.randn(2, 5, 3), torch.randn(2, 4, WIDTH))),
    "U-Net": (u_net, lambda: (torch.randn(2, 4, 8, 8), torch.tensor(7), torch.randn(2, 5, WIDTH))),
    "block": (transformer_block, lambda: (torch.randn(2, 5, WIDTH), None, torch.randn(2, 4, WIDTH))),
}


def each(kind, change):
    """A change of every module of a kind; those of them that return what takes them back are taken back in the opposite order."""
    def of(net):
        backs = [back for one in list(net.modules()) if (type(one).__name__ == kind if isinstance(kind, str) else isinstance(one, kind)) if callable(back := change(one))]
        return lambda: [back() for back in reversed(backs)] and None
    return of


def setting(name, value):
    def change(one):
        values, before = vars(one), vars(one).get(name, ...)
        values[name] = value(one)
        return lambda: values.pop(name) if before is ... else values.__setitem__(name, before)
    return change


def of_class(kind, name, make):
    """As those do who replace a function of PyTorch's own class."""
    def change(net):
        before = getattr(kind, name)
        setattr(kind, name, make(before))
        return lambda: setattr(kind, name, before)
    return change


def other_class(one):
    """As ToMe does."""
    kind = type(one)

    class Other(kind):
        def forward(self, *args, **kwargs):
            return 2 * super().forward(*args, **kwargs)

    one.__class__ = Other
    return lambda: setattr(one, "__class__", kind)


def twice(module, given, made):
    return 2 * made


def scaled_input(module, given):
    return (given[0] * 0.5, *given[1:])


def other_processor(attn):
    before = attn.processor
    attn.set_processor(type(before)())  # as who loads an IP-Adapter builds them anew
    if type(before) is AttnProcessor2_0:
        attn.set_processor(Processor(WIDTH).to(attn.to_q.weight.dtype))
    else:
        from diffusers.models.attention_processor import AttnProcessor
        attn.set_processor(AttnProcessor())
    return lambda: attn.set_processor(before)


def weights(assign):
    def change(net):
        before = copy.deepcopy(net.state_dict())
        net.load_state_dict({name: one.flip(0) for name, one in before.items()}, assign=assign)
        return lambda: net.load_state_dict(before)
    return change


def moved(dtype):
    def change(net):
        net.to(dtype)
        return lambda: net.to(torch.float32)
    return change


def in_training(net):
    net.train()
    return net.eval


def normed(net):
    """As weight_norm, of two kinds of layers."""
    parts = [one for one in net.modules() if type(one) in (nn.Conv2d, nn.Linear)][:2]
    for one in parts:
        nn.utils.parametrizations.weight_norm(one)
        one.parametrizations.weight.original0.data.mul_(2)


def another_patcher(net):
    backs = [wrap(one) for one in net.modules() if not list(one.children())]
    return lambda: [back() for back in reversed(backs)] and None


def lora(net):
    peft = pytest.importorskip("peft", reason="peft is not installed")
    names = [name for name, one in net.named_modules() if type(one) in (nn.Conv2d, nn.Linear)]
    made = peft.inject_adapter_in_model(peft.LoraConfig(r=2, target_modules=names, init_lora_weights=False), net)
    return lambda: peft.tuners.lora.LoraModel.unload(Unloads(made)) and None


class Unloads:
    """What LoraModel.unload needs of its own."""

    def __init__(self, net):
        from peft.tuners.lora import LoraModel
        self.model, self.prefix = net, LoraModel.prefix
        self._unload_and_optionally_merge = lambda **more: [parent.__setattr__(name, one.base_layer) for parent in list(net.modules())
                                                            for name, one in list(parent.named_children()) if hasattr(one, "base_layer")]


def sequential(net):
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    accelerate.cpu_offload(net, execution_device=torch.device("cpu"))
    return lambda: accelerate.hooks.remove_hook_from_submodules(net)


def groups(how):
    def change(net):
        hooks = pytest.importorskip("diffusers.hooks", reason="diffusers is not installed")
        hooks.apply_group_offloading(net, onload_device=torch.device("cpu"), offload_device=torch.device("cpu"), offload_type=how, num_blocks_per_group=1)
    return change


def casting(net):
    hooks = pytest.importorskip("diffusers.hooks", reason="diffusers is not installed")
    hooks.apply_layerwise_casting(net, storage_dtype=torch.bfloat16, compute_dtype=torch.float32)


def ip_adapter(net):
    """As diffusers loads one, and unloads it."""
    if not hasattr(net, "_load_ip_adapter_weights"):
        pytest.skip("no U-Net")
    dim, state = net.config.cross_attention_dim, {}
    for i, name in enumerate(net.attn_processors):
        if name.endswith("attn2.processor"):
            width = net.get_submodule(name.rpartition(".")[0]).inner_dim
            state |= {f"{i}.to_k_ip.weight": torch.randn(width, dim), f"{i}.to_v_ip.weight": torch.randn(width, dim)}
    project = {"proj.weight": torch.randn(4 * dim, dim), "proj.bias": torch.zeros(4 * dim), "norm.weight": torch.ones(dim), "norm.bias": torch.zeros(dim)}
    before = net.config.encoder_hid_dim_type
    net._load_ip_adapter_weights([{"image_proj": project, "ip_adapter": state}])
    net._images = torch.randn(2, 1, dim)

    def back():
        from diffusers.models.attention_processor import AttnProcessor2_0
        net.encoder_hid_proj = None
        net.register_to_config(encoder_hid_dim_type=before)
        net.set_attn_processor({name: AttnProcessor2_0() if "IPAdapter" in type(one).__name__ else type(one)() for name, one in net.attn_processors.items()})
        del net._images
    return back


CHANGES = {
    "padding_mode": each(nn.Conv2d, setting("padding_mode", lambda one: "circular")),
    "stride": each(nn.Conv2d, setting("stride", lambda one: (2, 2) if one.in_channels == 3 else one.stride)),
    "_conv_forward": each(nn.Conv2d, setting("_conv_forward", lambda one: lambda x, weight, bias: 2 * type(one)._conv_forward(one, x, weight, bias))),
    "the class's _conv_forward": of_class(nn.Conv2d, "_conv_forward", lambda before: lambda *given: 2 * before(*given)),
    "the class's forward": of_class(nn.Linear, "forward", lambda before: lambda *given: 2 * before(*given)),
    "eps": each(nn.GroupNorm, setting("eps", lambda one: 0.3)),
    "no bias of norms": each(nn.GroupNorm, lambda one: setattr(one, "bias", None)),
    "heads": each("Attention", setting("heads", lambda one: 1)),
    "a scale": each("Attention", setting("rescale_output_factor", lambda one: 0.5)),
    "a norm of queries": each("Attention", lambda one: setattr(one, "norm_q", nn.Tanh())),
    "hooks": each((nn.Conv2d, nn.Linear, nn.GroupNorm, nn.SiLU), lambda one: one.register_forward_hook(twice).remove),
    "pre-hooks": each((nn.Conv2d, nn.Linear, nn.GroupNorm, nn.SiLU), lambda one: one.register_forward_pre_hook(scaled_input).remove),
    "hooks of blocks": each("Attention", lambda one: one.register_forward_hook(twice).remove),
    "another class": each("Attention", other_class), "another class of layers": each(nn.GroupNorm, other_class), "another class of blocks": each("ResnetBlock2D", other_class),
    "another activation": each("ResnetBlock2D", lambda one: setattr(one, "nonlinearity", nn.ReLU())),
    "another last activation": lambda net: [setattr(one, "conv_act", nn.ReLU()) for one in net.modules() if hasattr(one, "conv_act")] and None,
    "a hook of the last activation": lambda net: [one.conv_act.register_forward_pre_hook(scaled_input) for one in net.modules() if hasattr(one, "conv_act")] and None,
    "weight_norm": normed, "another patcher": another_patcher,
    "processors": each("Attention", other_processor),
    "a state": weights(False), "an assigned state": weights(True), "double": moved(torch.float64), "a norm in double": each(nn.GroupNorm, moved(torch.float64)),
    "training": in_training,
    "adapters": adapt, "offload": offload, "casts": lambda net: cast(net, torch.bfloat16, torch.float32),
    "LoRA": lora, "sequential offload": sequential, "group offload of leaves": groups("leaf_level"), "group offload of blocks": groups("block_level"), "layerwise casting": casting,
    "IP-Adapter": ip_adapter,
}  # fmt: skip
# Those after which the ops go on; after the others PyTorch computes, where that makes a difference.
GO_ON = {"eps", "a scale", "a state", "an assigned state", "training", "another last activation", "a hook of the last activation", "group offload of blocks"}
# Those after which PyTorch does not take the input of some layer, patched or not.
REFUSED = {"a norm in double"}


@pytest.fixture(autouse=True)
def quietly():
    with torch.no_grad(), warnings.catch_warnings():
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
    return torch.is_tensor(got) and got.shape == wanted.shape and got.dtype == wanted.dtype and torch.allclose(got, wanted, rtol=1e-3, atol=1e-3)


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


@pytest.mark.parametrize("network", NETWORKS)
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
    net, given = made("convolutions")
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
    net, given = made("convolutions")
    stand_ins.offload(net)()
    before = {name: vars(one).get("forward") for name, one in net.named_modules()}
    with noisefloor.torch.patch(net) as report:
        assert report.left == {} and (back := stand_ins.offload(net))
    back()
    start = called(net, given)
    with noisefloor.torch.patch(net) as again:
        assert again.replaced == report.replaced and same(called(net, given), start) and again.fell_back == {}
    other, _ = made("convolutions")
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
