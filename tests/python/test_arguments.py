"""What a call refuses, and in which words; outputs, threads, and what the package says of itself."""

import ast
import inspect
import pickle
import re
import subprocess
import sys
import threading
from pathlib import Path

import built
import ml_dtypes
import noisefloor
import numpy as np
import pytest
import random_calls
from exchanging import Wrapped
from noisefloor import _signatures, ops

ROOT = Path(__file__).resolve().parents[2]


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


def norm(x=None, gamma=None, beta=None, **more):
    return ops.groupnorm(zeros(2, 6, 32) if x is None else x, zeros(32) if gamma is None else gamma, zeros(32) if beta is None else beta,
                         **{"groups": 4, **more})


def misaligned(*shape):
    return zeros(int(np.prod(shape)) + 1)[1:].reshape(shape)


def read_only(*shape):
    tensor = zeros(*shape)
    tensor.flags.writeable = False
    return tensor


SHARED = zeros(2, 6, 32)
REFUSED = [
    (dict(x=zeros(2, 6, 64)[..., ::2]), ValueError, "'x' must be contiguous in row-major order; its shape is [2, 6, 32], its strides are [384, 64, 2]"),
    (dict(x=zeros(2, 32, 6).transpose(0, 2, 1)), ValueError, "its strides are [192, 1, 6]; axis 1 lies last in memory: permute"),
    (dict(x=zeros(2, 32, 3, 2)), ValueError, "images are channels-last"),
    (dict(gamma=np.broadcast_to(zeros(1), (32,))), ValueError, "'gamma' must be contiguous"),
    (dict(beta=misaligned(32)), ValueError, "'beta' must begin at a multiple of 16 bytes"),
    (dict(x=zeros(0, 6, 32)), ValueError, "'x' is empty; every extent must be at least 1"),
    (dict(x=zeros()), ValueError, "'x' is [], there ["),
    (dict(x=np.float32(1)), ValueError, "'x' is [], there ["),
    (dict(beta=zeros(31)), ValueError, "'beta' is [31], there [32] (channels=32)"),
    (dict(x=zeros(2, 6, 32, dtype=np.float64)), ValueError, "'x' is fp64, not fp32"),
    (dict(x=zeros(2, 6, 32, dtype=np.complex64)), ValueError, "'x' has an element type that no op takes: complex64"),
    (dict(x=zeros(2, 6, 32, dtype=bool)), ValueError, "'x' has an element type that no op takes: bool"),
    (dict(gamma=zeros(32, dtype=np.float16)), ValueError, "'gamma' is fp16, not fp32"),
    (dict(x=[[1.0]]), TypeError, "'x' must be a tensor (of NumPy, PyTorch or whatever has DLPack), not a list"),
    (dict(gamma="silu"), TypeError, "'gamma' must be a tensor"),
    (dict(x=zeros(2, 6, 32).astype(object)), ValueError, "'x' cannot be read: DLPack only supports signed/unsigned integers, float and complex"),
    (dict(x=zeros(2, 6, 32, dtype=">f4")), ValueError, "'x' cannot be read: DLPack only supports native byte order. (dtype >f4"),
    (dict(scale=zeros(2, 32)), ValueError, "'scale'"),
    (dict(out=zeros(2, 6, 31)), ValueError, "output 'y' must be [2, 6, 32], not [2, 6, 31]"),
    (dict(out=zeros(2, 6, 32, dtype=np.float16)), ValueError, "'y' is fp16, not fp32"),
    (dict(out=read_only(2, 6, 32)), ValueError, "output 0 is read-only, and would be written"),
    (dict(out=misaligned(2, 6, 32)), ValueError, "output 0 must begin at a multiple of 16 bytes"),
    (dict(out=zeros(2, 6, 64)[..., ::2]), ValueError, "output 0 must be contiguous"),
    (dict(x=SHARED, out=SHARED), ValueError, "output 'y' shares memory with 'x'; no op works in place"),
    (dict(stats=True, out=zeros(2, 6, 32)), ValueError, "'out' must be a tuple of 3 tensors or None, not 1"),
    (dict(out=(zeros(2, 6, 32), None)), ValueError, "'out' must be one tensor, not 2"),
    (dict(out="y"), TypeError, "output 0 must be a tensor"),
    (dict(groups=None), ValueError, "give the arguments groups"),
    (dict(groups=5), ValueError, "groups=5 does not divide"),
    (dict(groups="many"), ValueError, "'groups' is 'many'"),
    (dict(groups=4.5), ValueError, "'groups' is '4.5'"),
    (dict(groups=2**80), ValueError, "'groups'"),
    (dict(eps=-1), ValueError, "'eps' is -1"),
    (dict(eps=zeros(2)), ValueError, "'eps'"),
    (dict(fusion="slu"), ValueError, "'fusion' is 'slu', not one of none, silu, silu+ss; did you mean 'silu'?"),
    (dict(channels=64), ValueError, "channels=64 clashes with them, channels=32 would fit"),
    (dict(variant="tild"), ValueError, "groupnorm has no variant 'tild'; did you mean 'tiled'?"),
    (dict(variant="naive"), ValueError, "variant 'naive' "),
    (dict(dtype="fp64"), ValueError, "dtype 'fp64' is not one of its element types: bf16, fp16, fp32, or what PyTorch and NumPy call these"),
    (dict(dtype=np.float64), ValueError, "dtype 'fp64' is not one of its element types"),
    (dict(dtype=np.int8), ValueError, "dtype 'int8' is not one of its element types"),
    (dict(dtype=np.float16), ValueError, "'x' is fp32, not fp16"),
    (dict(dtype="bf16"), ValueError, "'x' is fp32, not bf16"),
    (dict(stream=0), ValueError, "'stream' is for tensors on a GPU"),
    (dict(grops=4), TypeError, "unexpected keyword argument 'grops'"),
]


@pytest.mark.parametrize("arguments, error, text", REFUSED, ids=[text for _, _, text in REFUSED])
def test_what_does_not_fit_is_refused_by_name(arguments, error, text):
    with pytest.raises(error) as refused:
        norm(**arguments)
    assert text in str(refused.value) and "groupnorm" in str(refused.value)


@pytest.mark.parametrize("op", random_calls.OPS)
def test_nothing_crashes_an_op(op):
    """Every input of every op, in turn, as what it must not be."""
    values, inputs, fields = random_calls.call_of(op, 7, "fp32")
    for name, tensor in inputs.items():
        wrong = [zeros(), zeros(0), zeros(*tensor.shape, 1), zeros(*tensor.shape, dtype=np.float64), misaligned(*tensor.shape),
                 np.zeros(tensor.shape, "V3"), object(), b"abcd", zeros(*(tensor.shape[:-1] + (tensor.shape[-1] + 1, 2)))[..., 0],
                 zeros(*[1] * 9), ml_dtypes.float8_e5m2(1), zeros(*tensor.shape, dtype=">f4")]
        for other in wrong:
            with pytest.raises((ValueError, TypeError)):
                getattr(ops, op)(**{**inputs, name: other}, **fields, dtype="fp32")
    for lacking in inputs:
        try:  # what is left may be another problem of the op
            getattr(ops, op)(**{name: tensor for name, tensor in inputs.items() if name != lacking}, **fields, dtype="fp32")
        except (ValueError, TypeError):
            pass


def test_no_tensors_at_all():
    with pytest.raises(TypeError, match="attention needs tensors: q"):
        ops.attention()
    with pytest.raises(TypeError, match="missing .*'b'"):
        ops.gemm(zeros(3, 4))


def test_functions_pickle_by_their_name():
    assert pickle.loads(pickle.dumps(ops.gemm)) is ops.gemm


def test_unknown_ops_and_variants():
    with pytest.raises(AttributeError, match="noisefloor has no op 'grupnorm'; it has .*attention, "):
        ops.grupnorm
    with pytest.raises(ValueError, match="noisefloor has no op 'grupnorm'"):
        noisefloor.variants("grupnorm")
    host, *others = noisefloor.variants("gemm")
    assert (host.name, host.kind, host.built) == ("host", "host", True)
    assert [variant.name for variant in others if variant.kind == "ptx"]


def test_out_is_what_is_returned():
    out = [zeros(2, 6, 32), zeros(2, 4), zeros(2, 4)]
    y, mean, rstd = norm(np.ones((2, 6, 32), np.float32), stats=True, out=out)
    assert y is out[0] and mean is out[1] and rstd is out[2]
    assert (mean == 1).all()
    one = norm(stats=True, out=(None, out[1], None))
    assert one[1] is out[1] and one[0].shape == (2, 6, 32)
    with pytest.raises(ValueError, match="output 'rstd' shares memory with output 1"):
        norm(stats=True, out=(None, out[1], out[1]))
    with pytest.raises(ValueError, match="output 'mean' must be .2, 4., not .2, 3."):
        norm(stats=True, out=(None, zeros(2, 3), None))


def test_the_output_may_say_the_dtype():
    t = np.ones(3, np.float32)
    with pytest.raises(ValueError, match="the tensors fit bf16, fp16, fp32; give dtype="):
        ops.timestep_embedding(t, channels=8)
    out = zeros(3, 8, dtype=np.float16)
    assert ops.timestep_embedding(t, channels=8, out=out) is out and (out[:, 0] != 0).all()


@pytest.mark.parametrize("dtype", ["fp16", "float16", np.float16, np.dtype("float16"), "torch.float16"])
def test_a_dtype_has_the_names_that_frameworks_give_it(dtype):
    t = np.ones(3, np.float32)
    assert np.array_equal(ops.timestep_embedding(t, channels=8, dtype=dtype), ops.timestep_embedding(t, channels=8, dtype="fp16"))
    handle = noisefloor.prepare("gemm", (3, 4), np.ones((5, 4), np.float16), dtype=dtype)
    assert handle.dtype == "fp16" and (handle(np.ones((3, 4), np.float16)) == 4).all()
    assert ops.timestep_embedding(t, channels=8, dtype=ml_dtypes.bfloat16).dtype == ml_dtypes.bfloat16


def test_bf16_of_numpy_is_that_of_ml_dtypes():
    x = np.ones((2, 6, 32), ml_dtypes.bfloat16)
    y = norm(x, np.ones(32, x.dtype), np.ones(32, x.dtype))
    assert y.dtype == ml_dtypes.bfloat16 and (y == 1).all()
    with pytest.raises(ValueError, match="'x' must be contiguous"):
        norm(np.ones((2, 6, 64), x.dtype)[..., ::2], np.ones(32, x.dtype), np.ones(32, x.dtype))


def test_anything_with_dlpack():
    a = np.ones((3, 4), np.float32)
    out = zeros(3, 3)
    assert ops.gemm(Wrapped(a), memoryview(a), out=out) is out and (out == 4).all()
    with pytest.raises(TypeError, match="cannot make a tensor .*; give out="):
        ops.gemm(Wrapped(a), a)


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_a_capsule_serves_once(version):
    class Keeps:
        """Hands out the same capsule again."""

        def __init__(self, array):
            self.capsule = array.__dlpack__(max_version=version)

        def __dlpack__(self, **_):
            return self.capsule

        def __dlpack_device__(self):
            return (1, 0)

    a, out = np.ones((3, 4), np.float32), zeros(3, 3)
    for give in (Keeps, type("ndarray", (Keeps,), {}), lambda array: array.__dlpack__(max_version=version)):
        once, into = give(a), give(out)
        assert ops.gemm(once, a, out=into) is into and (out == 4).all()
        for arguments in ((once, a), (a, once), (twice := give(a), twice)):
            with pytest.raises(ValueError, match="gemm: '[ab]' is a DLPack capsule that was taken before; each serves once"):
                ops.gemm(*arguments, out=out)
        with pytest.raises(ValueError, match="output 0 is a DLPack capsule that was taken before"):
            ops.gemm(a, a, out=into)


@pytest.mark.parametrize("argument", ["variant", "dtype"])
def test_an_empty_text_is_not_none(argument):
    with pytest.raises(ValueError, match=f"gemm: '{argument}' is an empty text; None leaves it open"):
        ops.gemm(np.ones((3, 4), np.float32), np.ones((3, 4), np.float32), **{argument: ""})


def test_a_default_is_one_whether_given_or_not():
    x = np.random.default_rng(1).standard_normal((2, 6, 32)).astype(np.float32)
    assert np.array_equal(norm(x), norm(x, eps=1e-5, fusion="none", stats=False, n=2, hw=6))


def test_threads_do_as_one():
    """Two threads on the same and on different shapes, through the first call of each."""
    random = np.random.default_rng(3)
    tensors = [[random.standard_normal(shape).astype(np.float32) for shape in ((m, 40), (m + 5, 40))] for m in range(60, 72)]
    together, start = {}, threading.Barrier(2)

    def work(name):
        start.wait()
        together[name] = [ops.gemm(*pair) for pair in tensors for _ in range(3)]

    threads = [threading.Thread(target=work, args=(name,)) for name in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = [ops.gemm(*pair) for pair in tensors for _ in range(3)]
    for name in range(2):
        assert all(np.array_equal(one, other) for one, other in zip(together[name], alone))


def test_daemon_threads_may_be_inside_an_op_when_python_ends():
    code = """
import threading, numpy, noisefloor
a = numpy.ones((200, 200), numpy.float32)
begun = threading.Semaphore(0)
def loop():
    out = numpy.zeros_like(a)
    while True:
        noisefloor.ops.gemm(a, a, out=out)
        begun.release()
for _ in range(4):
    threading.Thread(target=loop, daemon=True).start()
for _ in range(8):
    begun.acquire()
"""
    result = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": built.FOLDER}, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")


def test_an_import_needs_neither_numpy_nor_torch():
    code = "import sys, noisefloor; noisefloor.ops.gemm; print(sorted({'numpy', 'torch', 'ml_dtypes'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": built.FOLDER}, capture_output=True, text=True)
    assert (result.stdout, result.stderr) == ("[]\n", "")


def test_the_version_is_the_projects():
    assert f"project(noisefloor VERSION {noisefloor.__version__} " in (ROOT / "CMakeLists.txt").read_text()


@pytest.mark.parametrize("op", random_calls.OPS)
def test_docstrings_name_every_argument(op):
    function, made = getattr(ops, op), _signatures.signature(op)
    unfolded = function.__doc__.replace("\n    ", " ")
    for name in inspect.signature(function).parameters:
        assert re.search(rf"^{name}: ", unfolded, re.M), name
    for name, field in made.fields.items():
        assert f"\n{name}: {field['meaning']} (" in unfolded
    assert f"\n\n{made.entry['computes']}\n\n" in unfolded and "default <" not in unfolded
    assert max(map(len, function.__doc__.splitlines())) < 120


@pytest.mark.parametrize("op", random_calls.OPS)
def test_the_call_of_a_docstring_binds_each_name_to_itself(op):
    function = getattr(ops, op)
    call, outputs = function.__doc__.splitlines()[0].split(" -> ")
    node = ast.parse(call.replace(", ...)", ")")).body[0].value
    given = inspect.signature(function).bind(*(one.id for one in node.args), **{one.arg: one.value.id for one in node.keywords})
    assert given.arguments and all(name == value for name, value in given.arguments.items())
    usual = _signatures.signature(op).usual
    values, tensors = next(one for one in random_calls.samples(op, 1, 60) if [tensor[0] for tensor in one[1]] == usual)
    called = {name: np.ones(shape, np.float32) for name, shape, _, role in tensors if role == "in"}
    fields = {name: values[name] for name in given.arguments if name not in called}
    dtype = None if any(dtype == "T" and role == "in" for _, _, dtype, role in tensors) else "fp32"
    made = function(**called, **fields, dtype=dtype)
    assert len(outputs.split(", ")) == (len(made) if isinstance(made, tuple) else 1)


def parameters_of(stub):
    """{function: {name: (whether by keyword alone, its default)}}"""
    found = {}
    for function in (node for node in ast.parse(stub.read_text()).body if isinstance(node, ast.FunctionDef)):
        given = function.args
        plain = zip(given.args, [None] * (len(given.args) - len(given.defaults)) + given.defaults)
        found[function.name] = {one.arg: (named, inspect.Parameter.empty if default is None else ast.literal_eval(default))
                                for named, pairs in ((False, plain), (True, zip(given.kwonlyargs, given.kw_defaults))) for one, default in pairs}  # fmt: skip
    return found


def parameters_here(function):
    return {name: (one.kind is one.KEYWORD_ONLY, one.default) for name, one in inspect.signature(function).parameters.items()}


def test_stubs_are_up_to_date(tmp_path):
    subprocess.run([sys.executable, "-m", "noisefloor._stubs", tmp_path], env={"PYTHONPATH": built.FOLDER}, check=True)
    for stub in ("ops.pyi", "torch.pyi"):
        assert (Path(built.FOLDER) / "noisefloor" / stub).read_text() == (tmp_path / stub).read_text()
    functions = parameters_of(tmp_path / "ops.pyi")
    assert sorted(functions) == random_calls.OPS == sorted(ops.__all__)
    for op, parameters in functions.items():
        assert parameters == parameters_here(getattr(ops, op))
