"""The operators' gradients, beside those of PyTorch's own functions in fp64, and by differences."""

import built  # noqa: F401 - first
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import noisefloor.torch as ours  # noqa: E402
import torch.nn.functional as F  # noqa: E402


def first(x):
    """Channels-last to channels-first."""
    return x.movedim(-1, 1)


def conv(x, w, bias=None, **more):
    return F.conv2d(first(x), first(w), bias, **{"padding": 1, **more}).movedim(1, -1)


def norm(x, gamma, beta, shifts):
    scale, shift = shifts[:, None].chunk(2, -1)
    return F.silu(F.group_norm(first(x), 4, gamma, beta).movedim(1, -1) * (1 + scale) + shift)


def layer(x, residual, scale, shift):
    return (F.layer_norm(x + residual, (40,)).reshape(2, 3, 40) * (1 + scale[:, None]) + shift[:, None]).reshape(6, 40)


def attention(*heads):
    return F.scaled_dot_product_attention(*(one.transpose(1, 2) for one in heads)).transpose(1, 2)


def over_frames(*heads, **scale):
    return F.scaled_dot_product_attention(*(one.movedim(1, 3) for one in heads), **scale).movedim(3, 1)


def transposed(x, w, bias=None):
    return F.conv_transpose2d(first(x), w.permute(3, 0, 1, 2), bias, stride=2, padding=w.shape[1] // 4).movedim(1, -1)


def geglu(a, b, bias, residual):
    value, gate = F.linear(a, b, bias).chunk(2, -1)
    return value * F.gelu(gate) + residual


def upscaled(x):
    return F.interpolate(first(x), scale_factor=2)


CASES = {  # ours, PyTorch's, shapes of the inputs
    "gemm": (ours.gemm, F.linear, (6, 8), (4, 8), (4,)),
    "gemm silu": (lambda *t: ours.gemm(*t, act="silu", scale=0.5), lambda a, b, c: F.silu(0.5 * F.linear(a, b) + c), (6, 8), (4, 8), (4,)),
    "gemm gelu": (lambda *t: ours.gemm(*t, act="gelu"), lambda *t: F.gelu(F.linear(*t)), (6, 8), (4, 8), (4,)),
    "gemm geglu": (lambda a, b, c, r: ours.gemm(a, b, c, residual=r, act="geglu"), geglu, (6, 8), (8, 8), (8,), (6, 4)),
    "conv2d": (lambda x, w, b, r: ours.conv2d(x, w, b, residual=r, gain=0.7, stride=2), lambda x, w, b, r: 0.7 * (conv(x, w, b, stride=2) + r),
               (2, 6, 8, 8), (4, 3, 3, 8), (4,), (2, 3, 4, 4)),
    "conv2d k1": (lambda x, w: ours.conv2d(x, w, act="silu", pad=0), lambda x, w: F.silu(conv(x, w, padding=0)), (2, 3, 4, 8), (4, 1, 1, 8)),
    "conv2d up": (lambda x, w, b, s: ours.conv2d(x, w, b, image_shift=s, upsample=True), lambda x, w, b, s: conv(upscaled(x).movedim(1, -1), w, b) + s[:, None, None],
                  (2, 3, 4, 8), (4, 3, 3, 8), (4,), (2, 4)),
    "groupnorm": (lambda x, g, b, s: ours.groupnorm(x, g, b, scale_shift=s, groups=4, fusion="silu+ss"), norm, (2, 12, 32), (32,), (32,), (2, 64)),
    "layernorm": (lambda x, g, b: ours.layernorm(x, None, g, b), lambda x, g, b: F.layer_norm(x, (40,), g, b), (6, 40), (40,), (40,)),
    "layernorm residual": (lambda x, r, s, h: ours.layernorm(x, r, scale=s, shift=h, images=2, fusion="scale_shift")[1], layer, (6, 40), (6, 40), (2, 40), (2, 40)),
    "layernorm sum": (lambda x, r: sum(ours.layernorm(x, r)), lambda x, r: x + r + F.layer_norm(x + r, (40,)), (6, 40), (6, 40)),
    "attention": (ours.attention, attention, (2, 5, 3, 8), (2, 7, 3, 8), (2, 7, 3, 8)),
    "attention packed": (lambda x: ours.attention(qkv=x, layout="packed_3hd"), lambda x: attention(*x.unbind(2)), (2, 5, 3, 3, 8)),
    "attention over frames": (ours.temporal_attention, over_frames, *[(2, 5, 3, 2, 8)] * 3),
    "frames packed": (lambda x: ours.temporal_attention(qkv=x, layout="packed_3hd"), lambda x: over_frames(*x.unbind(3)), (2, 5, 3, 3, 2, 8)),
    "frames packed by heads": (lambda x: ours.temporal_attention(qkv=x, layout="packed_h3d", scale=0.2), lambda x: over_frames(*x.unbind(4), scale=0.2), (1, 4, 3, 2, 3, 8)),
    "frames packed last": (lambda x: ours.temporal_attention(qkv=x, layout="packed_hd3"), lambda x: over_frames(*x.unbind(5)), (1, 4, 3, 2, 8, 3)),
    "transposed": (ours.conv_transpose2d, transposed, (2, 3, 4, 8), (5, 4, 4, 8), (5,)),
    "transposed k2": (lambda x, w: ours.conv_transpose2d(x, w, act="silu"), lambda x, w: F.silu(transposed(x, w)), (2, 3, 4, 8), (4, 2, 2, 8)),
    "silu": (lambda x: ours.elementwise(x=x, op="silu"), F.silu, (2, 5, 8)),
    "relu": (lambda x: ours.elementwise(x=x, op="relu"), F.relu, (2, 5, 8)),
    "add": (lambda a, b: ours.elementwise(a=a, b=b, op="add", scale=0.5), lambda a, b: 0.5 * (a + b), (2, 5, 8), (2, 5, 8)),
    "scale": (lambda x: ours.elementwise(x=x, op="scale", scale=0.3), lambda x: 0.3 * x, (2, 5, 8)),
    "cast": (lambda x: ours.elementwise(x=x, op="cast", to="fp32"), lambda x: x, (2, 5, 8)),
    "layout": (lambda x: ours.elementwise(x=x, op="nhwc_to_nchw"), lambda x: x.transpose(1, 2), (2, 5, 8)),
    "up": (lambda x: ours.resample(x, op="nearest_up2"), lambda x: upscaled(x).movedim(1, -1), (2, 5, 6, 8)),
    "down": (lambda x: ours.resample(x, op="average_down2"), lambda x: F.avg_pool2d(first(x), 2).movedim(1, -1), (2, 4, 6, 8)),
    "concat": (lambda x, s: ours.resample(x, s, op="concat"), lambda x, s: torch.cat([x, s], -1), (2, 4, 6, 8), (2, 4, 6, 5)),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_pytorch(name):
    function, theirs, *shapes = CASES[name]
    torch.manual_seed(0)
    leaves = [torch.randn(shape, requires_grad=True) for shape in shapes]
    wide = [leaf.detach().double().requires_grad_() for leaf in leaves]
    y, wanted = function(*leaves), theirs(*wide)
    dy = torch.randn_like(y)
    for got, right in zip(torch.autograd.grad(y, leaves, dy), torch.autograd.grad(wanted, wide, dy.double())):
        assert (got - right).norm() < 1e-6 * right.norm()


@pytest.mark.parametrize("name", ["gemm silu", "layernorm"])
def test_gradients_that_autograd_cuts_off_anywhere(name):
    """Behind a `cat` the gradient begins in the middle of another tensor."""
    function, _, *shapes = CASES[name]
    torch.manual_seed(0)
    leaves = [torch.randn(shape, requires_grad=True) for shape in shapes]
    y = function(*leaves)
    dy = torch.randn(y.numel() + 1)
    wanted = torch.autograd.grad(y, leaves, dy[1:].clone().reshape(y.shape), retain_graph=True)
    for got, right in zip(torch.autograd.grad(torch.cat([torch.zeros(1), y.flatten()]), leaves, dy), wanted):
        assert torch.equal(got, right)


@pytest.mark.parametrize("name", ["gemm silu", "conv2d", "groupnorm", "layernorm", "attention", "frames packed", "transposed", "concat"])
def test_gradcheck_passes(name):
    """By central differences; in fp32, whose differences are no better."""
    function, _, *shapes = CASES[name]
    torch.manual_seed(0)
    leaves = [torch.randn(shape, requires_grad=True) for shape in shapes]
    with pytest.warns(UserWarning, match="double precision"):
        assert torch.autograd.gradcheck(function, leaves, eps=1e-2, atol=1e-2, rtol=1e-2, nondet_tol=0)


def test_weights_of_16_bits_and_compiled_steps():
    torch.manual_seed(0)
    a, b = torch.randn(6, 8, dtype=torch.bfloat16, requires_grad=True), torch.nn.Parameter(torch.randn(4, 8, dtype=torch.bfloat16))

    def loss(a, b):
        return ours.gemm(torch.sin(a), b, act="silu").float().square().sum()

    wanted = torch.autograd.grad(loss(a, b), (a, b))
    assert [one.dtype for one in wanted] == [torch.bfloat16] * 2
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for got, right in zip(torch.autograd.grad(compiled(a, b), (a, b)), wanted):
        assert torch.equal(got, right)
