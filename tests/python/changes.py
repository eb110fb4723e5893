"""Changes to a network that users make before, under or behind patch, by their names. What takes a change back is returned; None where nothing does."""

import copy

import pytest
import torch
from stand_ins import adapt, cast, offload, wrap
from torch import nn


def each(kind, change):
    """A change of every module of a kind, or of kinds; those of them that return what takes them back are taken back in the opposite order."""
    kinds = kind if isinstance(kind, tuple) else (kind,)

    def of(net):
        ours = [one for one in net.modules() for kind in kinds if (type(one).__name__ == kind if isinstance(kind, str) else isinstance(one, kind))]
        backs = [back for one in ours if callable(back := change(one))]
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


class Doubles(nn.Linear):
    """In a layer's place: other numbers, whatever it is called with."""

    def __init__(self, width):
        super().__init__(width, width)

    def forward(self, x, *args, **kwargs):
        return 2 * super().forward(x)


def part(name, make):
    """Another module in the place of one inside, made of the module around it."""
    def change(one):
        parent, _, last = name.rpartition(".")
        modules = one.get_submodule(parent)._modules
        before, modules[last] = modules[last], make(one).eval().requires_grad_(False)
        return lambda: modules.__setitem__(last, before)
    return change


def doubled(one):
    inner = one.forward
    return lambda *args, **kwargs: 2 * inner(*args, **kwargs)


def biased(layer):
    if layer.bias is None:
        layer.bias = nn.Parameter(torch.ones(layer.out_features), requires_grad=False)
        return lambda: setattr(layer, "bias", None)


def every_hook(net):
    kinds = (nn.Linear, nn.GroupNorm, nn.SiLU)
    return nn.modules.module.register_module_forward_hook(lambda module, given, made: 2 * made if type(module) in kinds else None).remove


def autocast(net):
    context = torch.autocast("cpu", torch.bfloat16)
    context.__enter__()
    return lambda: context.__exit__(None, None, None)


def scaled_input(module, given):
    return (given[0] * 0.5, *given[1:])


def other_processor(attn):
    from diffusers.models.attention_processor import AttnProcessor

    before = attn.processor
    attn.set_processor(type(before)())  # as who loads an IP-Adapter builds them anew
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
    config = peft.LoraConfig(r=2, target_modules=names, init_lora_weights=False)
    return lambda made=peft.LoraModel(net, config, "default"): made.unload() and None


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
    "eps": each((nn.GroupNorm, nn.LayerNorm), setting("eps", lambda one: 0.0)), "groups": each(nn.GroupNorm, setting("num_groups", lambda one: 1)),
    "biases": each(nn.Linear, biased),
    "no bias of norms": each(nn.GroupNorm, lambda one: setattr(one, "bias", None)),
    "heads": each("Attention", setting("heads", lambda one: 1)),
    "a scale": each("Attention", setting("rescale_output_factor", lambda one: 0.5)),
    "a norm of queries": each("Attention", lambda one: setattr(one, "norm_q", nn.Tanh())),
    "hooks": each((nn.Conv2d, nn.Linear, nn.GroupNorm, nn.SiLU), lambda one: one.register_forward_hook(twice).remove),
    "pre-hooks": each((nn.Conv2d, nn.Linear, nn.GroupNorm, nn.SiLU), lambda one: one.register_forward_pre_hook(scaled_input).remove),
    "hooks of every module": every_hook, "autocast": autocast,
    "hooks of blocks": each(("Attention", "FeedForward"), lambda one: one.register_forward_hook(twice).remove),
    "forwards of blocks": each("Attention", setting("forward", doubled)), "forwards of dropouts": each(nn.Dropout, setting("forward", doubled)),
    "dropouts that drop all": each(nn.Dropout, lambda one: vars(one).update(p=1.0, training=True)),
    "no dropouts": each("FeedForward", part("net.1", lambda one: nn.Identity())), "no first norm": each("BasicTransformerBlock", part("norm1", lambda one: nn.Identity())),
    "another projection": each("Attention", part("to_out.0", lambda one: nn.Sequential(Doubles(one.inner_dim)))),
    "another last layer": each("FeedForward", part("net.2", lambda one: nn.Linear(one.net[2].in_features, one.net[2].out_features))),
    "another attention": each("BasicTransformerBlock", part("attn1", lambda one: Doubles(one.attn1.inner_dim))),
    "another feed-forward": each("BasicTransformerBlock", part("ff", lambda one: Doubles(one.attn1.inner_dim))),
    "another class": each("Attention", other_class), "another class of layers": each(nn.GroupNorm, other_class), "another class of blocks": each("ResnetBlock2D", other_class),
    "another activation": each("ResnetBlock2D", lambda one: setattr(one, "nonlinearity", nn.ReLU())),
    "weight_norm": normed, "another patcher": another_patcher,
    "processors": each("Attention", other_processor),
    "a state": weights(False), "an assigned state": weights(True), "double": moved(torch.float64), "a norm in double": each(nn.GroupNorm, moved(torch.float64)),
    "training": in_training,
    "adapters": adapt, "offload": offload, "casts": lambda net: cast(net, torch.bfloat16, torch.float32),
    "LoRA": lora, "sequential offload": sequential, "group offload of leaves": groups("leaf_level"), "group offload of blocks": groups("block_level"), "layerwise casting": casting,
    "IP-Adapter": ip_adapter,
}  # fmt: skip
# Those after which the ops go on; after the others PyTorch computes, where that makes a difference.
GO_ON = {"a scale", "biases", "a state", "an assigned state", "training", "group offload of blocks", "forwards of dropouts", "dropouts that drop all", "no dropouts",
         "no first norm", "another projection", "another last layer"}
# Those after which PyTorch does not take the input of some layer, patched or not.
REFUSED = {"a norm in double"}
