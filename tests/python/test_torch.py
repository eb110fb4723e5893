"""PyTorch: its tensors through noisefloor.ops, and the operators that noisefloor.torch registers, against plain NumPy in fp64."""

import copy
import enum
import sys
from pathlib import Path

import built  # first
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import noisefloor  # noqa: E402
import noisefloor.torch  # noqa: E402
import numpy as np  # noqa: E402
import random_calls  # noqa: E402
from test_arguments import parameters_here, parameters_of  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def tensors(inputs):
    """NumPy's as PyTorch's, which takes no bf16 of NumPy's."""
    return {name: torch.from_numpy(array.view(np.uint16).copy()).view(torch.bfloat16) if array.dtype.name == "bfloat16" else
            torch.from_numpy(array.copy()) for name, array in inputs.items()}


def operator_call(op, seed, dtype):
    """(values, inputs, positional and keyword arguments of the operator itself)"""
    values, inputs, fields = random_calls.call_of(op, seed, dtype)
    made = noisefloor._signatures.signature(op)
    given, words = tensors(inputs), {name: value for name, value in fields.items() if name in made.keywords}
    if "noise" in made.shared and "noise" not in inputs:
        words["noise"] = values["noise"]
    text = ",".join(f"{name}={value}" for name, value in words.items())
    return values, inputs, [given.pop(name, None) for name in made.first], given | {"dtype": dtype, "fields": text or None}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", random_calls.OPS)
def test_both_ways_give_what_numpy_gives(op, dtype):
    for seed in range(3):
        values, inputs, fields = random_calls.call_of(op, seed, dtype)
        wanted = random_calls.outcome(getattr(noisefloor.ops, op), op, copy.deepcopy(inputs), fields, dtype=dtype)
        for package in (noisefloor.ops, noisefloor.torch):
            got = random_calls.outcome(getattr(package, op), op, tensors(inputs), fields, dtype=dtype)
            assert len(got) == len(wanted)
            for one, right in zip(got, wanted):
                assert isinstance(one, torch.Tensor) and np.array_equal(one.double().numpy(), right.astype(np.float64), equal_nan=True)


def test_the_stub_has_what_there_is():
    functions = parameters_of(Path(built.FOLDER) / "noisefloor" / "torch.pyi")
    assert sorted([*functions, "patch"]) == sorted(noisefloor.torch.__all__)
    for op in random_calls.OPS:
        function = getattr(noisefloor.torch, op)
        assert functions[op] == parameters_here(function)
        assert all(f"\n{name}: " in function.__doc__ for name in functions[op]) and "\nplan: " not in function.__doc__


@pytest.mark.parametrize("make, reason", [
    (lambda a: a.to("meta"), "Cannot pack tensors on meta .dtype torch.float32, layout torch.strided, device meta"),
    (lambda a: a.to_sparse(), "Can't export tensors with layout other than torch.strided .dtype torch.float32, layout torch.sparse_coo"),
    (lambda a: a.to_sparse_csr().requires_grad_(), "layout other than torch.strided .dtype torch.float32, layout torch.sparse_csr"),
    (lambda a: torch.quantize_per_tensor(a, 0.1, 0, torch.quint8), "types are not supported by dlpack .dtype torch.quint8"),
])  # fmt: skip
def test_a_tensor_without_plain_memory_is_refused_with_its_kind(make, reason):
    with torch.no_grad(), pytest.raises(ValueError, match=f"gemm: 'a' cannot be read: .*{reason}"):
        noisefloor.ops.gemm(make(torch.ones(3, 4)), torch.ones(5, 4))


@pytest.mark.parametrize("package", ["ops", "torch"])
def test_a_dtype_may_be_pytorchs(package):
    embed = getattr(noisefloor, package).timestep_embedding
    for name, dtype in DTYPES.items():
        assert embed(torch.ones(3), channels=8, dtype=dtype).dtype == embed(torch.ones(3), channels=8, dtype=name).dtype == dtype
    with pytest.raises(ValueError, match="dtype 'int8' is not one of its element types: bf16, fp16, fp32"):
        embed(torch.ones(3), channels=8, dtype=torch.int8)
    compiled = torch.compile(lambda t: noisefloor.torch.timestep_embedding(t, channels=8, dtype=torch.float16), fullgraph=True, backend="aot_eager")
    assert compiled(torch.ones(3)).dtype == torch.float16


def test_what_an_op_updates_is_known_to_be_written():
    for package in (noisefloor.ops, noisefloor.torch):
        p, m, v, g = torch.ones(8), torch.zeros(8), torch.zeros(8), torch.ones(8)
        assert package.adamw(p, m, v, g, torch.tensor([0.5, 10, 1000, 0]), torch.ones(1), dtype="fp32") is None
        assert p._version and m._version and v._version and not g._version
        assert torch.allclose(p, torch.full((8,), 0.5))

    def step(p, g):
        noisefloor.torch.adamw(p, torch.zeros_like(p), torch.zeros_like(p), g, torch.tensor([0.5, 10, 1000, 0]), torch.ones(1), dtype="fp32")
        return 2 * p

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    p = torch.ones(8)
    assert torch.allclose(compiled(p, torch.ones(8)), torch.ones(8)) and torch.allclose(p, torch.full((8,), 0.5))


@pytest.mark.parametrize("op", random_calls.OPS)
def test_opcheck(op):
    for seed in range(2):
        _, _, positional, keywords = operator_call(op, seed, "fp32")
        torch.library.opcheck(getattr(torch.ops.noisefloor, op).default, tuple(positional), keywords)


def test_gradients_are_refused_where_they_are_recorded():
    x, gamma, beta = torch.randn(2, 16, 32), torch.nn.Parameter(torch.ones(32)), torch.zeros(32)
    with pytest.raises(ValueError, match="'gamma' requires a gradient"):
        noisefloor.ops.groupnorm(x, gamma, beta, groups=4)
    with pytest.raises(ValueError, match="mse_loss: 'y' requires a gradient"):
        noisefloor.torch.mse_loss(torch.ones(2, 8, requires_grad=True), torch.ones(2, 8))
    with pytest.raises(ValueError, match="gradient of act=gelu_tanh"):
        noisefloor.torch.gemm(x[0], gamma.reshape(1, 32), act="gelu_tanh")
    for package in (noisefloor.ops, noisefloor.torch):
        with torch.no_grad():
            assert not package.groupnorm(x, gamma, beta, groups=4).requires_grad


@pytest.mark.parametrize("package", ["ops", "torch"])
def test_what_does_not_fit_is_refused_by_name(package):
    norm = getattr(noisefloor, package).groupnorm
    x, ones = torch.randn(2, 6, 32), torch.ones(32)
    for other, text in [(x.transpose(0, 1), "'x' must be contiguous"), (x.double(), "'x' is fp64, not fp32"), (x[:, :, :31], "'x' must be"),
                        (x.reshape(-1)[1:321].reshape(1, 10, 32), "'x' must begin at a multiple of 16 bytes"),
                        (x[:0], "'x' is empty"), (x[0, 0, 0], "'x' is \\[\\], there")]:
        with pytest.raises(ValueError, match=text):
            norm(other, ones, ones, groups=4)
    with pytest.raises((ValueError, TypeError, NotImplementedError)):
        norm(x.to_sparse(), ones, ones, groups=4)
    with FakeTensorMode(), pytest.raises((ValueError, TypeError)):
        noisefloor.ops.groupnorm(torch.ones(2, 6, 32), torch.ones(32), torch.ones(32), groups=4)
    with pytest.raises((ValueError, RuntimeError)):
        noisefloor.torch.gemm(x[0], x[1], bias=True)
    with pytest.raises(TypeError, match="multiple values for argument 'bias'"):
        getattr(noisefloor, package).gemm(x[0], x[1], False, bias=torch.ones(6))


def test_the_meta_device_gives_shapes():
    y, mean, rstd = noisefloor.torch.groupnorm(*(torch.empty(shape, device="meta", dtype=torch.bfloat16) for shape in ((2, 6, 32), (32,), (32,))),
                                               groups=4, stats=True)
    assert (y.shape, y.dtype, y.device.type, mean.shape, mean.dtype) == ((2, 6, 32), torch.bfloat16, "meta", (2, 4), torch.float32)


@pytest.mark.parametrize("moved", ["x", "w", "bias", "prepared"])
def test_several_devices_are_refused_without_a_kernel_too(moved):
    x, w, bias = torch.randn(2, 6, 5, 8), torch.randn(16, 3, 3, 8), torch.randn(16)
    given = {"x": x, "w": w, "bias": bias, "prepared": noisefloor.prepare("conv2d", x.shape, w, bias).memory}
    given[moved] = given[moved].to("meta")
    with pytest.raises(ValueError, match="conv2d: '(x|w|bias|prepared)' is on (cpu|meta), 'x' on (cpu|meta); all tensors must be on one device"):
        noisefloor.torch.conv2d(**given, variant="host")


def test_a_handle_of_the_operators():
    """Compiled, it takes packed weights; out= and stream= are not for operators."""
    x, w, bias = torch.randn(2, 6, 5, 8), torch.randn(16, 3, 3, 8), torch.randn(16)
    wanted = noisefloor.ops.conv2d(x, w, bias, act="silu")
    assert torch.equal(noisefloor.prepare("conv2d", x.shape, w, bias, act="silu")(x), wanted)
    conv = noisefloor.torch.prepare("conv2d", x.shape, w, bias, act="silu")
    assert isinstance(conv.memory, torch.Tensor) and conv.memory.data_ptr() % 64 == 0 and torch.equal(conv(x), wanted)
    assert torch.equal(torch.compile(lambda x: conv(x) + 1, fullgraph=True, backend="aot_eager")(x), wanted + 1)
    conv.memory.zero_()
    assert torch.allclose(conv(x), torch.nn.functional.silu(bias).expand(wanted.shape), atol=1e-6)  # it reads nothing else
    with pytest.raises(TypeError, match="'out'"):
        conv(x, out=wanted)
    conv = noisefloor.torch.prepare("conv2d", x.shape, w, torch.nn.Parameter(bias).detach())
    y = conv(x.requires_grad_())
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], noisefloor.torch.conv2d_dgrad(torch.ones_like(y), w, h=6, w=5))
    with pytest.raises(ValueError, match="'w' requires a gradient"):
        noisefloor.prepare("conv2d", x.shape, torch.nn.Parameter(w), bias)


on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU")


@on_gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", random_calls.OPS)
def test_every_variant_on_a_gpu_gives_what_the_host_gives(op, dtype):
    for which in range(6):
        values, inputs, fields = random_calls.call_of(op, 1, dtype, which)
        wanted = random_calls.outcome(getattr(noisefloor.ops, op), op, copy.deepcopy(inputs), fields, dtype=dtype)
        tolerance = [2 * part for part in random_calls.outputs_of(op, inputs, fields, dtype)[1]]
        for variant in [None] + [variant.name for variant in noisefloor.variants(op) if variant.built and variant.kind != "host"]:
            given = {name: tensor.cuda() for name, tensor in tensors(inputs).items()}
            try:
                got = random_calls.outcome(getattr(noisefloor.ops, op), op, given, fields, dtype=dtype, variant=variant)
            except ValueError as refused:  # not every variant runs every problem
                assert variant and "cannot run" in str(refused)
                continue
            for one, right in zip(got, wanted):
                assert one.is_cuda and random_calls.error_text(one.double().cpu().numpy(), right.astype(np.float64), tolerance) == "", (values, variant)


@on_gpu
def test_streams_and_graphs():
    x, ones = torch.randn(2, 4096, 320, device="cuda"), torch.ones(320, device="cuda")
    with torch.no_grad():
        wanted = noisefloor.ops.groupnorm(x, ones, ones, groups=32)
        for package in (noisefloor.ops, noisefloor.torch):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                other = package.groupnorm(x, ones, ones, groups=32)
            stream.synchronize()
            assert torch.equal(other, wanted)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                captured = package.groupnorm(x, ones, ones, groups=32)
            captured.zero_()
            graph.replay()
            torch.cuda.synchronize()
            assert torch.equal(captured, wanted)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        given = noisefloor.ops.groupnorm(x, ones, ones, groups=32, stream=stream)
        stream.synchronize()
        assert torch.equal(given, wanted)
    with pytest.raises(ValueError, match="'gamma' is on the CPU, 'x' on GPU 0"):
        noisefloor.ops.groupnorm(x, ones.cpu(), ones, groups=32)


@on_gpu
def test_a_handle_serves_streams_and_graphs():
    """A convolution of 4 channels, whose weights the best variant pads, and one behind an upsample, whose taps it sums."""
    for x, w, more in [((2, 64, 64, 4), (320, 3, 3, 4), {}), ((2, 16, 16, 64), (64, 3, 3, 64), {"upsample": True})]:
        x, w, bias = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in (x, w, w[:1]))
        wanted = noisefloor.ops.conv2d(x, w, bias, **more)
        handles = [package.prepare("conv2d", x.shape, w, bias, **more) for package in (noisefloor, noisefloor.torch)]
        for handle in handles:
            assert handle.memory.is_cuda and torch.equal(handle(x), wanted) and torch.equal(handle(x[:1].contiguous()), wanted[:1])
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                other = handle(x)
            stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                captured = handle(x)
                with pytest.raises(ValueError, match="while a CUDA graph captures"):
                    noisefloor.prepare("conv2d", x.shape, w, bias, **more)
            captured.zero_()
            graph.replay()
            torch.cuda.synchronize()
            assert torch.equal(other, wanted) and torch.equal(captured, wanted)
        with pytest.raises(ValueError, match="on the CPU"):
            handles[0](x.cpu())
        given = [handles[0](x, stream=torch.cuda.Stream()) for _ in range(8)]
        del handles, handle  # the memory waits for the streams that read it
        junk = [torch.full((1 << 16,), float("nan"), device="cuda") for _ in range(32)]
        torch.cuda.synchronize()
        assert len(junk) == 32 and all(torch.equal(one, wanted) for one in given)


def test_autograd_sees_that_out_was_written():
    a, b, x = torch.ones(8, 16), torch.ones(8, 16), torch.full((8, 8), 3.0)
    y = (torch.ones(8, 8, requires_grad=True) * x).sum()
    noisefloor.ops.gemm(a, b, out=x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()
    with torch.inference_mode():
        noisefloor.ops.gemm(a, b, out=torch.empty(8, 8))


def test_forward_mode_gradients_are_refused():
    x, ones = torch.randn(2, 6, 32), torch.ones(32)
    for package in (noisefloor.torch, noisefloor.ops):
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, x)
            with pytest.raises(ValueError, match="groupnorm: 'x' has a forward-mode gradient, and the ops have none"):
                package.groupnorm(dual, ones, ones, groups=4)
            with torch.no_grad(), pytest.raises(ValueError, match="'gamma' has a forward-mode gradient"):
                package.groupnorm(x, torch.autograd.forward_ad.make_dual(ones, ones), ones, groups=4)
            assert package.groupnorm(x, ones, ones, groups=4).shape == x.shape, "of what has none nothing is asked"
    with pytest.raises(ValueError, match="'x' has a forward-mode gradient"):
        torch.func.jvp(lambda x: noisefloor.torch.groupnorm(x, ones, ones, groups=4), (x,), (x,))


TRANSFORMED = {
    "vmap": lambda call, a, b: torch.func.vmap(lambda row: call(row, b))(a[None]),
    "vmap of weights": lambda call, a, b: torch.func.vmap(lambda one: call(a, b=one))(b[None]),
    "grad": lambda call, a, b: torch.func.grad(lambda a: call(a, b).sum())(a),
    "vjp": lambda call, a, b: torch.func.vjp(lambda a: call(a, b), a),
    "jacrev": lambda call, a, b: torch.func.jacrev(lambda a: call(a, b))(a),
    "grads in batches": lambda call, a, b: torch.autograd.grad(call(a.requires_grad_(), b)[0], a, torch.eye(4), is_grads_batched=True),
}


@pytest.mark.parametrize("transform", TRANSFORMED)
def test_transforms_are_refused_by_name(transform):
    with pytest.raises(ValueError, match=r"^gemm: .*torch\.func.*torch\.autograd"):
        TRANSFORMED[transform](noisefloor.torch.gemm, torch.randn(8, 16), torch.randn(4, 16))
    linear = torch.nn.Linear(16, 4)
    with noisefloor.torch.patch(linear), pytest.raises(ValueError, match="torch.func"):
        torch.func.grad(lambda weight: torch.func.functional_call(linear, {"weight": weight}, torch.randn(8, 16)).sum())(linear.weight.detach())


# ---- What others do to PyTorch

@pytest.mark.parametrize("call", [noisefloor.ops.gemm, noisefloor.torch.gemm])
def test_a_view_into_no_storage_is_refused(call):
    view = torch.ones(4, 8)[2:]
    view.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="has no memory of its own"):
        call(view, torch.ones(3, 8))


def test_a_framework_that_makes_other_tensors_than_asked_for_is_caught_and_then_forgotten(monkeypatch):
    a, b, real = torch.ones(2, 8), torch.ones(3, 8), torch.empty
    for other in ({"dtype": torch.bfloat16}, {"size": (2, 2)}, {"device": "meta"}):
        with monkeypatch.context() as patched:
            patched.setattr(torch, "empty", lambda **asked: real(**{**asked, **other}))  # noqa: B023 - called at once
            with pytest.raises((RuntimeError, ValueError, TypeError)):
                noisefloor.ops.gemm(a, b)
    assert (noisefloor.ops.gemm(a, b) == 8).all()


def test_a_pytorch_that_is_kept_from_being_imported_is_none(monkeypatch):
    a = np.ones((2, 8), np.float32)
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "torch", None)
        assert (noisefloor.ops.gemm(a, a) == 8).all()
    with pytest.raises(ValueError, match="gradient"):
        noisefloor.ops.gemm(torch.ones(2, 8, requires_grad=True), torch.ones(3, 8))


def test_fields_are_one_text():
    x, ones = torch.randn(2, 5, 8), torch.ones(8)
    operator = torch.ops.noisefloor.groupnorm
    wanted = noisefloor.ops.groupnorm(x, ones, ones, groups=4, fusion="silu", eps=0.5)
    assert torch.equal(operator(x, ones, ones, fields="groups=4,fusion=silu,eps=0.5")[0], wanted)
    assert torch.equal(noisefloor.torch.groupnorm(x, ones, ones, groups=4, fusion="silu", eps=0.5), wanted)
    assert torch.equal(operator(x, ones, ones, fields="groups=8,stats=False")[0], noisefloor.ops.groupnorm(x, ones, ones, groups=8, stats=False))
    for wrong, why in (("groups=3", "groups"), ("groups", "="), ("group=4", "group"), ("groups=4,groups=4", "groups"), ("", "groups"), (",", "=")):
        with pytest.raises(ValueError, match=why):
            operator(x, ones, ones, fields=wrong)


@pytest.mark.parametrize("name, value", [("fusion", "silu,eps=0.5"), ("groups", "4,eps=0.5")])
def test_a_value_is_no_second_field(name, value):
    x, ones = torch.randn(2, 5, 8), torch.ones(8)
    with pytest.raises(ValueError, match=f"groupnorm: '{name}' takes"):
        noisefloor.torch.groupnorm(x, ones, ones, **{"groups": 4, name: value})


def test_a_number_in_a_tensors_place_is_the_field():
    x, w = torch.randn(1, 4, 4, 8), torch.randn(8, 3, 3, 8)
    assert torch.equal(noisefloor.torch.conv2d(x, w, side=0), noisefloor.ops.conv2d(x, w, side=0))


def test_what_is_none_was_not_given():
    x, ones = torch.randn(2, 5, 8), torch.ones(8)
    assert torch.equal(noisefloor.torch.groupnorm(x, ones, ones, groups=4, eps=None, n=None), noisefloor.ops.groupnorm(x, ones, ones, groups=4))
    assert torch.equal(noisefloor.torch.gemm(x[0], x[1], bias=False), noisefloor.ops.gemm(x[0], x[1]))


def compiled_without_breaks(call, **options):
    torch._dynamo.reset()
    return torch.compile(call, fullgraph=True, backend="eager", **options)


def test_fields_may_be_symbols_of_a_compiled_call():
    x, ones = torch.randn(2, 5, 8), torch.ones(8)
    normed = lambda x, groups, eps: noisefloor.torch.groupnorm(x, ones, ones, groups=groups, eps=eps)  # noqa: E731
    for options in ({}, {"dynamic": True}):
        call = compiled_without_breaks(normed, **options)
        for groups, eps in ((4, 1e-5), (8, 0.5), (2, 1e-6), (1, 1)):
            assert torch.equal(call(x, groups, eps), normed(x, groups, eps)), (groups, eps)
    counted = compiled_without_breaks(lambda x: noisefloor.torch.groupnorm(x, ones, ones, groups=4, n=x.shape[0]), dynamic=True)
    for n in (2, 3):
        assert counted(torch.randn(n, 5, 8)).shape == (n, 5, 8)


def test_values_of_other_kinds():
    class Fusion(str, enum.Enum):
        SILU = "silu"

    class Groups(enum.IntEnum):
        FOUR = 4

    class Text(str):
        def __str__(self):
            return "none"

    x, ones = torch.randn(2, 5, 8), torch.ones(8)
    wanted = noisefloor.ops.groupnorm(x, ones, ones, groups=4, fusion="silu")
    for groups, fusion in ((Groups.FOUR, Fusion.SILU), (np.int64(4), Text("silu")), ("4", "silu")):
        assert torch.equal(noisefloor.torch.groupnorm(x, ones, ones, groups=groups, fusion=fusion), wanted)
    for wrong in ((4, 1), torch.tensor([4, 4]), Text("4,eps=0.5")):
        with pytest.raises(ValueError, match="groupnorm: 'groups' takes"):
            noisefloor.torch.groupnorm(x, ones, ones, groups=wrong)
    with pytest.raises(ValueError, match="groupnorm: 'fields' 'groups=4,eps':"):
        torch.ops.noisefloor.groupnorm(x, ones, ones, fields="groups=4,eps")


@on_gpu
def test_the_allocator_is_told_once_of_each_stream_that_reads_prepared_weights(monkeypatch):
    told, real = [], torch.Tensor.record_stream
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: told.append(tensor.data_ptr()) or real(tensor, stream))
    x, w = torch.randn(2, 64, 64, 4, device="cuda", dtype=torch.bfloat16), torch.randn(320, 3, 3, 4, device="cuda", dtype=torch.bfloat16)
    handle, other = (noisefloor.prepare("conv2d", x.shape, w, w[:, 0, 0, 0].contiguous()) for _ in range(2))
    assert handle.memory is not None
    streams = [torch.cuda.Stream() for _ in range(2)]
    for of, stream in [(handle, streams[0])] * 3 + [(handle, streams[1]), (other, streams[0])] * 2:
        of(x, stream=stream)
    torch.cuda.synchronize()
    assert told == [handle.memory.data_ptr()] * 2 + [other.memory.data_ptr()]
    copied = copy.deepcopy(handle.memory)
    for _ in range(2):
        noisefloor.torch.conv2d(x, w, w[:, 0, 0, 0].contiguous(), variant=handle.variant, prepared=copied)
    assert told[3:] == [copied.data_ptr()]


def test_a_tensor_and_the_word_for_it_are_too_much():
    x0, levels, noise = torch.ones(2, 6), torch.tensor([[1.0, 2.0]] * 2), torch.full((2, 6), 3.0)
    assert (torch.ops.noisefloor.q_sample(x0, levels, noise, fields="seed=3")[0] == 7).all()
    with pytest.raises(ValueError, match="noise"):
        torch.ops.noisefloor.q_sample(x0, levels, noise, fields="noise=drawn,seed=3")
