"""noisefloor.torch.patch: small networks of diffusers on the CPU, with the host variants, against themselves as they were."""

import copy
import pickle

from patching import Copies, no_gradients, off, torch  # noqa: F401 - first; a fixture of every test

import diffusers.models.attention
import diffusers.models.resnet
import noisefloor.torch
import pytest
from noisefloor import _layers

COMMON = {"block_out_channels": (16, 32), "layers_per_block": 1, "norm_num_groups": 8}


def conditional(**more):
    """In the shape of SD 1.5's U-Net."""
    net = diffusers.UNet2DConditionModel(sample_size=8, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), cross_attention_dim=24,
                                         up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), attention_head_dim=4, **{**COMMON, **more})
    return net, lambda dtype, size=8: (torch.randn(2, 4, size, size, dtype=dtype), torch.tensor(7), torch.randn(2, 5, 24, dtype=dtype))


def unconditional(**more):
    """Attention over images, group norms in it, and residuals around it."""
    net = diffusers.UNet2DModel(sample_size=8, down_block_types=("DownBlock2D", "AttnDownBlock2D"), attention_head_dim=8,
                                up_block_types=("AttnUpBlock2D", "UpBlock2D"), **COMMON, **more)
    return net, lambda dtype, size=8: (torch.randn(2, 3, size, size, dtype=dtype), torch.tensor(7))


def autoencoder(**more):
    net = diffusers.AutoencoderKL(down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2, **COMMON, **more)
    return net, lambda dtype, size=8: (torch.randn(2, 3, size, size, dtype=dtype),)


def video():
    """In the shape of SVD's, whose convolutions over time and blends are left."""
    net = diffusers.UNetSpatioTemporalConditionModel(
        sample_size=8, down_block_types=("CrossAttnDownBlockSpatioTemporal", "DownBlockSpatioTemporal"), cross_attention_dim=32, num_attention_heads=(2, 4),
        up_block_types=("UpBlockSpatioTemporal", "CrossAttnUpBlockSpatioTemporal"), addition_time_embed_dim=8, num_frames=3, layers_per_block=1,
        projection_class_embeddings_input_dim=24, block_out_channels=(32, 64))
    return net, lambda dtype: (torch.randn(1, 3, 8, 8, 8, dtype=dtype), torch.tensor(3), torch.randn(1, 1, 32, dtype=dtype), torch.randn(1, 3, dtype=dtype))


def transformer():
    net = diffusers.DiTTransformer2DModel(num_attention_heads=2, attention_head_dim=8, num_layers=2, sample_size=8, num_embeds_ada_norm=10, norm_num_groups=4)
    return net, lambda dtype: (torch.randn(2, 4, 8, 8, dtype=dtype), torch.tensor([3, 3]), torch.tensor([1, 2]))


LEFT = {"resampling": {"it is no interpolation before a Conv2d that is replaced"}, "video": {"no op of patch's replaces Conv3d", "no op of patch's replaces AlphaBlender"},
        "transformer": {"kernel_size=(2, 2), which is even", "its norm_type is ada_norm_zero", "no op of patch's replaces Embedding"}}
NETWORKS = {"sd": (conditional, {}), "linear": (conditional, {"use_linear_projection": True}), "scale-shift": (conditional, {"resnet_time_scale_shift": "scale_shift"}),
            "images": (unconditional, {}), "resampling": (unconditional, {"downsample_type": "resnet", "upsample_type": "resnet"}),
            "decoder": (autoencoder, {}), "video": (video, {}), "transformer": (transformer, {})}


def made(name, dtype=torch.float32):
    torch.manual_seed(1)
    network, more = NETWORKS[name]
    net, inputs = network(**more)
    for weight in net.parameters():  # norms are 1 and 0 otherwise
        torch.nn.init.normal_(weight, 1 if weight.ndim == 1 else 0, 0.2 if weight.ndim == 1 else (weight[0].numel()) ** -0.5)
    return net.eval().to(dtype), inputs


def traces(net):
    """What of ours is in it, or in an object that a module keeps."""
    return [name for name, one in net.named_modules() for kept in (one, *vars(one).values()) if "noisefloor" in type(kept).__module__]


@pytest.mark.parametrize("name", NETWORKS)
def test_a_patched_network_is_the_network(name):
    net, inputs = made(name)
    given = inputs(torch.float32)
    wanted, before = net(*given).sample, {key: value.clone() for key, value in net.state_dict().items()}
    with noisefloor.torch.patch(net) as report:
        got = net(*given).sample
        assert set(report.left.values()) == LEFT.get(name, set()) and got.shape == wanted.shape
        assert 0 < off(got, wanted) < 1e-5 and (name in ("video", "transformer") or got.is_contiguous(memory_format=torch.channels_last))
        assert off(net(*[one.to(memory_format=torch.channels_last) if one.ndim == 4 else one for one in given]).sample, wanted) < 1e-5
    assert torch.equal(net(*given).sample, wanted)
    after = net.state_dict()
    assert list(after) == list(before) and all(torch.equal(after[key], before[key]) and after[key].stride() == before[key].stride() for key in before)
    assert not traces(net)


@pytest.mark.parametrize("activation", ["geglu", "gelu", "gelu-approximate"])
def test_feed_forward_layers(activation):
    net, x = diffusers.models.attention.FeedForward(8, activation_fn=activation), torch.randn(2, 3, 8)
    wanted = net(x)
    with noisefloor.torch.patch(net) as report, Copies() as calls:
        assert off(net(x), wanted) < 1e-6 and len(report.replaced) == 3 and not report.left
    assert calls.calls["noisefloor.gemm.of_module"] == 2 and not {"gelu", "addmm"} & calls.calls.keys()


def test_another_activation_leaves_the_block_and_takes_its_layers():
    net, given = conditional(act_fn="gelu")
    given = given(torch.float32)
    wanted = net(*given).sample
    with noisefloor.torch.patch(net) as report:
        assert off(net(*given).sample, wanted) < 1e-5
        assert set(report.left.values()) == {"its activation is GELU"} and all("resnets" in name for name in report.left)


@pytest.mark.parametrize("name", ["sd", "scale-shift", "images"])
def test_in_bf16_it_is_as_close_to_fp64_as_before(name):
    net, inputs = made(name, torch.bfloat16)
    given = inputs(torch.bfloat16)
    plain = net(*given).sample
    with noisefloor.torch.patch(net):
        patched = net(*given).sample
    exact = net.double()(*[one.double() if one.is_floating_point() else one for one in given]).sample
    assert patched.dtype == torch.bfloat16 and off(patched, exact) < 1.25 * off(plain, exact) < 0.1


def test_other_sizes_take_the_same_weights():
    net, inputs = made("sd")
    odd, large = inputs(torch.float32, 9), inputs(torch.float32, 16)  # of 9 an upsample is told its size
    wanted = [net(*odd).sample, net(*large).sample]
    with noisefloor.torch.patch(net):
        assert off(net(*odd).sample, wanted[0]) < 1e-5 and off(net(*large).sample, wanted[1]) < 1e-5


class Wrapped(torch.Tensor):
    """As quantised weights are."""


def test_weights_of_another_class_are_left():
    net = torch.nn.Linear(8, 4)
    net.weight = torch.nn.Parameter(net.weight.detach().as_subclass(Wrapped))
    with noisefloor.torch.patch(net) as report:
        assert report.replaced == {} and report.left == {"": "its weights are a Wrapped"}


def test_a_module_that_was_taken_apart_keeps_no_other_from_undo():
    net = torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3), torch.nn.Conv2d(8, 4, 3))
    report = noisefloor.torch.patch(net)
    del net[1].weight
    report.undo()
    assert not traces(net) and net[0].weight.is_contiguous()


@pytest.mark.parametrize("name", ["sd", "linear"])
def test_channels_last_is_not_copied(name):
    net, inputs = made(name)
    given = inputs(torch.float32)
    with noisefloor.torch.patch(net), Copies() as copies:
        net(given[0].to(memory_format=torch.channels_last), *given[1:])
    assert copies.calls["noisefloor.conv2d.of_module"] > 20
    assert not {"add", "clone", "copy_", "convolution", "addmm", "native_group_norm", "_scaled_dot_product_flash_attention_for_cpu"} & copies.calls.keys()


def test_compile_traces_through_and_sees_undo():
    net, inputs = made("sd")
    given = inputs(torch.float32)
    wanted = net(*given).sample
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    with noisefloor.torch.patch(net):
        eager = net(*given).sample
        assert torch.equal(compiled(*given).sample, eager) and not torch.equal(eager, wanted)
    assert torch.equal(compiled(*given).sample, wanted)


def test_inductor_compiles_what_is_patched():
    """A block of which nothing is left to inductor's own kernels, which take a compiler and half a minute."""
    net = diffusers.models.resnet.ResnetBlock2D(in_channels=16, out_channels=32, temb_channels=None, groups=8)
    x = torch.randn(2, 16, 6, 6).to(memory_format=torch.channels_last)
    with noisefloor.torch.patch(net):
        assert torch.equal(torch.compile(net, fullgraph=True, backend="inductor")(x, None), net(x, None))


@pytest.mark.parametrize("name", ["sd", "linear", "scale-shift", "images", "resampling", "decoder", "transformer"])
def test_a_patched_network_trains(name):
    """Each parameter's gradient, and the input's, beside PyTorch's."""
    net, inputs = made(name)
    x, *others = inputs(torch.float32)

    def gradients():
        net.zero_grad()
        leaf = x.clone().requires_grad_()
        net(leaf, *others).sample.square().mean().backward()
        return {"x": leaf.grad, **{key: parameter.grad.clone() for key, parameter in net.named_parameters() if parameter.grad is not None}}

    with torch.enable_grad():
        wanted = gradients()
        with noisefloor.torch.patch(net) as report:
            got = gradients()
            assert not report.fell_back
    assert got.keys() == wanted.keys()
    size = max(one.norm() for one in wanted.values())  # a bias before a norm has none but for rounding
    assert max((got[key] - one).norm() / max(one.norm(), 1e-3 * size) for key, one in wanted.items()) < 2e-4
    assert all(parameter.is_leaf for parameter in net.parameters())


@pytest.mark.filterwarnings("ignore:noisefloor.torch.patch")
def test_groups_of_one_element_train_by_pytorch():
    net, x = torch.nn.GroupNorm(4, 4), torch.randn(2, 4, 1, 1, requires_grad=True)
    with torch.enable_grad(), noisefloor.torch.patch(net) as report:
        net(x).sum().backward()
    assert x.grad.abs().max() < 1e-3 and len(report.fell_back) == 1


def test_what_is_left_is_named_with_the_reason():
    nn = torch.nn
    net = nn.ModuleDict({"groups": nn.Conv2d(4, 4, 3, groups=2), "dilated": nn.Conv2d(4, 4, 3, dilation=2), "even": nn.Conv2d(4, 4, 2), "oblong": nn.Conv2d(4, 4, (3, 1)),
                         "same": nn.Conv2d(4, 4, 3, padding="same"), "mirrored": nn.Conv2d(4, 4, 3, padding_mode="reflect", padding=1),
                         "wide": nn.Linear(4, 4).double(), "plain": nn.GroupNorm(2, 4, affine=False), "uneven": nn.LayerNorm((3, 4)), "unbiased": nn.LayerNorm(4, bias=False), "video": nn.Conv3d(4, 4, 1),
                         "hooked": nn.Linear(4, 4), "empty": nn.Conv2d(4, 4, 3, device="meta"), "right": nn.Conv2d(4, 4, 3), "seamless": nn.Conv2d(4, 4, 3), "derived": type("Own", (nn.Linear,), {})(4, 4)})
    net["hooked"].forward, net["seamless"]._conv_forward = lambda x: x, lambda x, weight, bias: x
    report = noisefloor.torch.patch(net)
    assert report.replaced == {"right": "Conv2d: conv2d"}
    for name, why in {"groups": "groups=2", "dilated": "dilation=(2, 2)", "even": "kernel_size=(2, 2), which is even", "oblong": "kernel_size=(3, 1)", "same": "padding='same'",
                      "mirrored": "padding_mode='reflect'", "wide": "element type", "plain": "it has no weights", "uneven": "it is over 2 axes", "unbiased": "it has a weight and no bias",
                      "video": "replaces Conv3d", "empty": "on the device 'meta'", "hooked": "its forward is replaced already", "seamless": "its _conv_forward is replaced", "derived": "replaces Own"}.items():
        assert why in report.left[name]
    assert set(report.left) == set(net) - {"right"}
    text = str(report).splitlines()
    assert text[0] == "noisefloor replaced 1 modules and left 15" and "  groups: left, groups=2" in text and "  right: Conv2d: conv2d" in text
    with pytest.raises(ValueError, match="the module is patched already .at 'right'.: undo that first"):
        noisefloor.torch.patch(net)
    report.undo()
    report.undo()
    noisefloor.torch.patch(net).undo()
    with pytest.raises(TypeError, match="patch takes a torch.nn.Module, not a list"):
        noisefloor.torch.patch([net])


def test_a_patch_that_fails_leaves_nothing_behind(monkeypatch):
    net, inputs = made("sd")
    given = inputs(torch.float32)
    wanted, calls = net(*given).sample, []

    def fail(packed, conv, name, upsample, made=_layers.Packed.__init__):
        calls.append(conv)
        if len(calls) == 5:
            raise RuntimeError("out of memory")
        made(packed, conv, name, upsample)

    monkeypatch.setattr(_layers.Packed, "__init__", fail)
    monkeypatch.setattr(_layers.Packed, "serves", lambda weight: True)
    with pytest.raises(RuntimeError, match="out of memory"):
        noisefloor.torch.patch(net)
    assert torch.equal(net(*given).sample, wanted) and not traces(net)


def test_norms_of_another_element_type_are_left():
    net, inputs = made("sd", torch.bfloat16)
    norms = {name: norm.float() for name, norm in net.named_modules() if isinstance(norm, (torch.nn.GroupNorm, torch.nn.LayerNorm))}
    given = inputs(torch.bfloat16)
    wanted = net(*given).sample
    with noisefloor.torch.patch(net) as report:
        assert off(net(*given).sample, wanted) < 0.05
        assert {report.left[name] for name in norms} == {"its weights are torch.float32, most of the network's torch.bfloat16"}


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))], ids=["deepcopy", "pickle"])
def test_a_copy_is_patched_and_has_its_own_weights(copied):
    net, inputs = made("sd")
    given = inputs(torch.float32)
    wanted = net(*given).sample
    with noisefloor.torch.patch(net):
        patched = net(*given).sample
        other = copied(net)
        assert torch.equal(other(*given).sample, patched) and "conv_in" in traces(other)
        other.conv_in.weight.data.mul_(2)
        changed = other(*given).sample
        assert off(changed, patched) > 1e-3 and torch.equal(copied(other)(*given).sample, changed)
        assert torch.equal(net(*given).sample, patched)
    assert torch.equal(net(*given).sample, wanted)
    other = copied(net)
    assert torch.equal(other(*given).sample, wanted) and not traces(other)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_weights_that_are_computed_in_each_call_are_left():
    nn = torch.nn
    net, x = nn.Sequential(nn.Conv2d(4, 8, 3), nn.Conv2d(8, 8, 3), nn.Linear(4, 4)), torch.randn(1, 4, 8, 8)
    nn.utils.parametrizations.weight_norm(net[0]), nn.utils.weight_norm(net[1]), nn.utils.parametrizations.weight_norm(net[2])
    with noisefloor.torch.patch(net) as report:
        for part in (net[0].parametrizations.weight.original0, net[1].weight_g, net[2].parametrizations.weight.original0):
            part.mul_(3)
        patched = net(x)
    assert off(patched, net(x)) < 1e-6
    assert report.left == {"0": "no op of patch's replaces ParametrizedConv2d", "1": "its weight is computed in each call", "2": "no op of patch's replaces ParametrizedLinear"}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU")
@pytest.mark.parametrize("dtype, limit", [(torch.float32, 1e-3), (torch.bfloat16, 3e-2)])
def test_on_a_gpu_and_under_graphs(dtype, limit):
    """fp32 of PyTorch may be tf32 there."""
    net, inputs = made("sd", dtype)
    given = [one.cuda() for one in inputs(dtype)]
    wanted = net.cuda()(*given).sample
    with noisefloor.torch.patch(net) as report:
        eager = net(*given).sample
        assert report.left == {} and off(eager, wanted) < limit
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = net(*given).sample
        captured.zero_()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(captured, eager)
