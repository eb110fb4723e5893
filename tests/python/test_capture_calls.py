"""noisefloor.capture(): which problems calls of PyTorch are."""

import built  # noqa: F401 - finds the module
import noisefloor
import pytest
from capturing import F, found, maker, needs_torch, torch
from noisefloor import _mapping


def test_a_field_out_of_range_is_a_reason():
    with pytest.raises(_mapping.Unmapped, match="no conv2d: problem: field 'kernel' is 33, outside 1 to 31"):
        _mapping.problem("conv2d", "fp32", n=1, h=64, w=64, cin=8, cout=8, kernel=33)


CALLS = {
    "linear": (lambda t: F.linear(t(2, 3, 8), t(4, 8), t(4)), "gemm m=6,n=4,k=8"),
    "linear of a view": (lambda t: F.linear(t(2, 8, 3).transpose(1, 2), t(4, 8), t(4)), "gemm m=6,n=4,k=8"),
    "linear of a vector": (lambda t: F.linear(t(8), t(4, 8)), "gemm m=1,n=4,k=8,bias=0"),
    "matmul": (lambda t: t(2, 3, 8) @ t(8, 4), "gemm m=6,n=4,k=8,bias=0"),
    "one matrix for a batch": (lambda t: torch.bmm(t(2, 3, 8), t(8, 4).expand(2, 8, 4)), "gemm m=6,n=4,k=8,bias=0"),
    "addmm": (lambda t: torch.addmm(t(6, 4), t(6, 8), t(8, 4), alpha=0.5), "gemm m=6,n=4,k=8,scale=0.5,bias=0,residual=1"),
    "addmm, half": (lambda t: torch.addmm(t(4), t(6, 8), t(8, 4), beta=0.5), "addmm: gemm adds with a factor of 1 only"),
    "products": (lambda t: torch.bmm(t(2, 3, 8), t(2, 8, 4)), "bmm: gemm has no batch of matrices"),
    "attention": (lambda t: F.scaled_dot_product_attention(t(2, 3, 5, 16), t(2, 3, 7, 16), t(2, 3, 7, 16)),
                  "attention batch=2,heads=3,seq_q=5,seq_kv=7,dim=16"),
    "attention of one head": (lambda t: F.scaled_dot_product_attention(t(2, 5, 16), t(2, 5, 16), t(2, 5, 16), scale=0.5),
                              "attention batch=2,heads=1,seq_q=5,seq_kv=5,dim=16,scale=0.5"),
    "attention further down": (lambda t: torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*[t(2, 3, 5, 16)] * 3),
                               "attention batch=2,heads=3,seq_q=5,seq_kv=5,dim=16"),
    "the usual scale": (lambda t: F.scaled_dot_product_attention(t(1, 1, 5, 16), t(1, 1, 5, 16), t(1, 1, 5, 16), scale=0.25),
                        "attention batch=1,heads=1,seq_q=5,seq_kv=5,dim=16"),
    "causal": (lambda t: F.scaled_dot_product_attention(t(1, 2, 5, 8), t(1, 2, 5, 8), t(1, 2, 5, 8), is_causal=True),
               "scaled_dot_product_attention: attention is not causal"),
    "masked": (lambda t: F.scaled_dot_product_attention(t(1, 2, 5, 8), t(1, 2, 5, 8), t(1, 2, 5, 8), t(5, 5)),
               "scaled_dot_product_attention: attention takes no mask"),
    "conv2d": (lambda t: F.conv2d(t(2, 8, 6, 5), t(4, 8, 3, 3), t(4), padding=1), "conv2d n=2,h=6,w=5,cin=8,cout=4"),
    "conv2d, no bias": (lambda t: F.conv2d(t(2, 8, 6, 5), t(4, 8, 3, 3), padding=1), "conv2d n=2,h=6,w=5,cin=8,cout=4,bias=0"),
    "conv2d of one tap": (lambda t: F.conv2d(t(2, 8, 6, 5), t(4, 8, 1, 1), t(4)), "gemm m=60,n=4,k=8"),
    "conv2d of one tap, stride": (lambda t: F.conv2d(t(2, 8, 6, 5), t(4, 8, 1, 1), stride=2),
                                  "conv2d n=2,h=6,w=5,cin=8,cout=4,kernel=1,stride=2,bias=0"),
    "conv2d, same": (lambda t: F.conv2d(t(2, 8, 6, 5), t(4, 8, 3, 3), t(4), padding="same"), "conv2d n=2,h=6,w=5,cin=8,cout=4"),
    "conv2d, stride": (lambda t: F.conv2d(t(2, 8, 6, 5), t(4, 8, 3, 3), t(4), stride=2, padding=0),
                       "conv2d n=2,h=6,w=5,cin=8,cout=4,stride=2,pad=0"),
    "conv2d of a patch": (lambda t: F.conv2d(t(2, 8, 6, 6), t(4, 8, 2, 2), t(4), stride=2),
                          "conv2d n=2,h=6,w=6,cin=8,cout=4,kernel=2"),
    "conv2d of an even kernel": (lambda t: F.conv2d(t(2, 8, 6, 6), t(4, 8, 2, 2), t(4)),
                                 "convolution: conv2d has odd kernels, or with a stride of 2 one of 2 without pad or of 4 with a pad of 1; it is 2-D, kernel 2x2, stride 1, pad 0"),
    "depthwise": (lambda t: F.conv2d(t(2, 8, 6, 6), t(8, 1, 3, 3), groups=8), "convolution: convolutions have no groups, and it has 8"),
    "dilated": (lambda t: F.conv2d(t(2, 8, 6, 6), t(8, 8, 3, 3), dilation=2), "convolution: convolutions have no dilation"),
    "conv1d": (lambda t: F.conv1d(t(2, 8, 6), t(4, 8, 3), padding=1), "convolution: conv2d is square; it is 1-D, kernel 3, stride 1, pad 1"),
    "conv3d": (lambda t: F.conv3d(t(2, 8, 5, 4, 3), t(4, 8, 3, 1, 1), t(4), padding=(1, 0, 0)),
               "conv3d_temporal batch=2,frames=5,hw=12,cin=8,cout=4"),
    "conv_transpose2d": (lambda t: F.conv_transpose2d(t(2, 8, 6, 5), t(8, 4, 4, 4), t(4), stride=2, padding=1),
                         "conv_transpose2d n=2,h=6,w=5,cin=8,cout=4"),
    "group_norm": (lambda t: F.group_norm(t(2, 8, 6, 5), 4, t(8), t(8), 1e-6), "groupnorm n=2,hw=30,channels=8,groups=4,eps=1e-06"),
    "group_norm, bare": (lambda t: F.group_norm(t(2, 8, 6, 5), 4), "native_group_norm: groupnorm has a weight and a bias"),
    "layer_norm": (lambda t: F.layer_norm(t(2, 6, 8), (8,), t(8), t(8)), "layernorm rows=12,channels=8"),
    "layer_norm, bare": (lambda t: F.layer_norm(t(2, 6, 8), (8,), eps=1e-6), "layernorm rows=12,channels=8,affine=0,eps=1e-06"),
    "silu": (lambda t: F.silu(t(2, 8, 6, 5)), "elementwise op=silu,hw=60,channels=8"),
    "relu, in place": (lambda t: F.relu(t(2, 6, 8), inplace=True), "elementwise op=relu,hw=12,channels=8"),
    "add": (lambda t: t(2, 6, 8) + t(2, 6, 8), "elementwise op=add,hw=12,channels=8"),
    "add, in place": (lambda t: t(2, 6, 8).add_(t(2, 6, 8)), "elementwise op=add,hw=12,channels=8"),
    "add, a number": (lambda t: t(2, 6, 8) + 1, "add: elementwise adds tensors of one shape only"),
    "cast": (lambda t: t(2, 6, 8).half(), "elementwise op=cast,hw=12,channels=8,to=fp16"),
    "no cast": (lambda t: t(2, 6, 8).double(), "_to_copy: a cast to torch.float64"),
    "mixed": (lambda t: t(2, 8) + t(2, 8).half(), "add: tensors of torch.float16 and torch.float32"),
    "to channels-last": (lambda t: t(2, 8, 6, 5).permute(0, 2, 3, 1).contiguous(), "elementwise op=nchw_to_nhwc,n=2,hw=30,channels=8"),
    "to channels-last memory": (lambda t: t(2, 8, 6, 5).contiguous(memory_format=torch.channels_last),
                                "elementwise op=nchw_to_nhwc,n=2,hw=30,channels=8"),
    "to channels-first": (lambda t: t(2, 6, 5, 8).permute(0, 3, 1, 2).contiguous(), "elementwise op=nhwc_to_nchw,n=2,hw=30,channels=8"),
    "concat": (lambda t: torch.cat([t(2, 8, 6, 5), t(2, 4, 6, 5)], 1), "resample op=concat,n=2,h=6,w=5,channels=8,skip_channels=4"),
    "concat of videos": (lambda t: torch.cat([t(2, 3, 8, 6, 5), t(2, 3, 4, 6, 5)], 2),
                         "resample op=concat,n=6,h=6,w=5,channels=8,skip_channels=4"),
    "concat of rows": (lambda t: torch.cat([t(2, 8), t(2, 4)], -1), "resample op=concat,n=2,h=1,w=1,channels=8,skip_channels=4"),
    "concat of three": (lambda t: torch.cat([t(2, 8)] * 3), "cat: resample puts two tensors together, not 3"),
    "nearest": (lambda t: F.interpolate(t(2, 8, 6, 5), scale_factor=2.0), "resample op=nearest_up2,n=2,h=6,w=5,channels=8"),
    "nearest, thrice": (lambda t: F.interpolate(t(2, 8, 6, 5), scale_factor=3.0), "upsample_nearest2d: resample doubles images"),
    "average": (lambda t: F.avg_pool2d(t(2, 8, 6, 4), 2), "resample op=average_down2,n=2,h=6,w=4,channels=8"),
    "embedding": (lambda t: F.embedding(torch.zeros(3, dtype=torch.long, device=t.device), t(9, 8)), "embedding: no op of the catalogue"),
}  # fmt: skip


@needs_torch
@pytest.mark.parametrize("mode", ["no_grad", "inference_mode", "enable_grad"])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_its_problem_on_any_device(name, mode):
    call, wanted = CALLS[name]
    for device in ["cpu", "meta"] + ["cuda"] * (torch.cuda.is_available() and name != "attention further down"):
        with getattr(torch, mode)(), noisefloor.capture() as capture:
            call(maker(device))
        said = found(capture)
        assert wanted in said and len(said) <= 3, (device, said)  # beside it what makes its arguments
        assert all(share is None or 0 <= share <= 1 for share in capture.coverage().values())


@needs_torch
@pytest.mark.parametrize("grad", [False, True])
def test_several_calls_are_one_problem(grad):
    def geglu(t):
        value, gate = t(2, 6, 16).chunk(2, dim=-1)
        return value * F.gelu(gate)

    def halves_exchanged(t):
        gate, value = t(2, 6, 16).chunk(2, dim=-1)
        return value * F.gelu(gate)

    def waves(t):
        x = t(3, 1) * t(1, 8)
        y = torch.cat([x.sin(), x.cos()], dim=-1)
        return torch.cat([y[:, 8:], y[:, :8]], dim=-1)

    for device in ("cpu", "meta"):
        with noisefloor.capture() as capture:
            geglu(maker(device, grad))
        assert found(capture) == ["elementwise op=geglu,hw=12,channels=8"] and capture.coverage()["calls"] == 1
        with noisefloor.capture() as capture:
            halves_exchanged(maker(device, grad))
        assert [group.what[0] for group in capture.unmapped()] == ["gelu", "mul"]
        with noisefloor.capture() as capture:
            waves(maker(device, grad))
        assert found(capture) == ["timestep_embedding batch=3,channels=16", "mul: elementwise has no product"]


@needs_torch
def test_what_stands_behind_a_product_or_a_norm_is_of_its_problem():
    layer, x = torch.nn.Linear(16, 8), torch.ones(2, 6, 16)
    for approximate, act in (("none", "gelu"), ("tanh", "gelu_tanh")):
        with torch.no_grad(), noisefloor.capture() as capture:
            F.gelu(layer(x), approximate=approximate)
        assert found(capture) == [f"gemm m=12,n=8,k=16,act={act}"] and capture.problems()[0].flops == 2 * 12 * 8 * 16 + 12 * 8
    row, more = torch.ones(2, 1, 16), "layernorm rows=12,channels=16,images=2,fusion=scale_shift,affine=0"
    for change, one, shift, wanted in ((1, 1, row, more), (2, 1, row, None), (1, 2, row, None), (1, 1, row[:1], None)):
        with noisefloor.capture() as capture:
            norm = F.layer_norm(x, (16,))
            (norm.mul_(change) if change != 1 else norm) * (one + row) + shift
        assert [text for text in found(capture) if text.startswith("layernorm")] == [wanted or "layernorm rows=12,channels=16,affine=0"]


def gated(x, w1, w2):
    """The second tensor may lie where the first one was."""
    h = x @ w1
    gate = F.gelu(h[:, 8:])
    del h
    return (x @ w2)[:, :8] * gate


def waves_of_two(t, f1, f2):
    return torch.cat([torch.sin(t * f1), torch.cos(t * f2)], 1)


def changed(which):
    def call(x, w1, w2):
        h = x @ w1
        gate = F.gelu(h[:, 8:])
        (h if which == "h" else gate).mul_(2)
        return h[:, :8] * gate

    return call


def changed_waves(t, f1, f2):
    x = t * f1
    sine = x.sin()
    return torch.cat([sine, x.add_(1).cos()], 1)


@needs_torch
@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
@pytest.mark.parametrize("program, shapes, wrong", [(gated, ((4, 8), (8, 16), (8, 16)), "op=geglu"), (waves_of_two, ((4, 1), (1, 8), (1, 8)), "timestep_embedding"),
                                                    (changed("h"), ((4, 8), (8, 16), (8, 16)), "op=geglu"), (changed("gate"), ((4, 8), (8, 16), (8, 16)), "op=geglu"),
                                                    (changed_waves, ((4, 1), (1, 8), (1, 8)), "timestep_embedding")])  # fmt: skip
def test_other_numbers_are_no_problem_together(program, shapes, wrong, mode):
    with getattr(torch, mode)():
        inputs = [torch.randn(shape) for shape in shapes]
        for _ in range(30):
            with noisefloor.capture() as capture:
                program(*inputs)
            assert not [one for one in found(capture) if wrong in one], found(capture)


@needs_torch
def test_what_only_writes_or_moves_to_a_device_is_no_call():
    with noisefloor.capture() as capture:
        x = torch.randn(4, 8)
        torch.nn.init.normal_(x), torch.zeros_like(x), x.new_zeros(3), x.fill_(2), x.to("meta"), x[:, 2:].reshape(-1), torch.ones(0, 3) + 1
    assert [call.name for call in capture.calls] == ["clone"]


@needs_torch
def test_our_own_operators_are_their_problems():
    import noisefloor.torch as ours

    x, w, gamma = torch.randn(2, 6, 5, 8), torch.randn(16, 3, 3, 8), torch.ones(8)
    with torch.no_grad(), noisefloor.capture() as capture:
        ours.conv2d(x, w, stride=2, bias=False)
        ours.gemm(x.reshape(60, 8).bfloat16(), torch.ones(16, 8).bfloat16(), act="silu", bias=False)
        ours.groupnorm(x.reshape(2, 30, 8), gamma, gamma, groups=4, fusion="silu")
    said = found(capture)
    for wanted in ("conv2d n=2,h=6,w=5,cin=8,cout=16,stride=2,bias=0", "gemm m=60,n=16,k=8,act=silu,bias=0", "groupnorm n=2,hw=30,channels=8,groups=4,fusion=silu"):
        assert wanted in said, said
    calls = {call.problem.op: call for call in capture.calls if call.problem and call.name.startswith("noisefloor::")}
    assert calls["gemm"].flops >= 2 * 60 * 16 * 8 and calls["gemm"].problem.dtype == "bf16" and calls["conv2d"].flops >= 2 * 2 * 9 * 16 * 9 * 8


@needs_torch
def test_a_patched_network_has_its_flops():
    attention = pytest.importorskip("diffusers.models.attention", reason="diffusers is not installed")
    import noisefloor.torch
    from diffusers.models.resnet import ResnetBlock2D

    for net, inputs in ((ResnetBlock2D(in_channels=16, temb_channels=None, groups=2), (torch.randn(2, 16, 8, 8), None)),
                        (attention.BasicTransformerBlock(16, 2, 8, double_self_attention=True), (torch.randn(2, 64, 16),))):
        with torch.no_grad(), noisefloor.capture() as plain:
            net(*inputs)
        with torch.no_grad(), noisefloor.torch.patch(net) as report, noisefloor.capture() as patched:
            net(*inputs)
        flops = [sum(call.flops for call in capture.calls if call.mapped) for capture in (plain, patched)]
        assert 0.95 * flops[0] < flops[1] < 1.25 * flops[0] and patched.coverage()["flops"] > 0.99 and report.fell_back == {}, (flops, str(patched))
