"""Calls that come again: what is remembered of them follows all that decides; and tensors that come by DLPack's exchange in C."""

import built  # noqa: F401 - first
import noisefloor
import numpy as np
import pytest
from exchanging import make_type, ones
from noisefloor import _signatures

gemm, groupnorm = noisefloor.ops.gemm, noisefloor.ops.groupnorm


# ---- What is remembered

def test_another_shape_dtype_or_field_is_another_call():
    draw = np.random.default_rng(3).standard_normal
    calls = []
    for rows in (4, 6):
        for dtype, near in ((np.float32, 1e-4), (np.float16, 2e-2)):
            x = draw((2, rows, 16)).astype(dtype)
            gamma, beta = draw(16).astype(dtype), draw(16).astype(dtype)
            for groups in (2, 4, np.int64(8)):
                for fusion in ("none", "silu"):
                    for eps in (1e-5, 0.5, 1):
                        calls.append((x, gamma, beta, groups, fusion, eps, near))

    def right(x, gamma, beta, groups, fusion, eps):
        split = x.astype(np.float64).reshape(*x.shape[:2], int(groups), -1)
        mean, variance = split.mean((1, 3), keepdims=True), split.var((1, 3), keepdims=True)
        y = ((split - mean) / np.sqrt(variance + eps)).reshape(x.shape) * gamma + beta
        return y / (1 + np.exp(-y)) if fusion == "silu" else y

    for order in (calls, calls[::-1], calls):  # of which all but the first find what is remembered
        for *given, near in order:
            x, gamma, beta, groups, fusion, eps = given
            y = groupnorm(x, gamma, beta, groups=groups, fusion=fusion, eps=eps)
            assert y.dtype == x.dtype and np.allclose(y, right(*given), atol=near), given[3:]


def test_a_flag_a_number_and_a_text_are_not_taken_for_each_other():
    x, gamma, beta = ones((1, 4, 8)), ones(8), ones(8)
    for _ in range(2):
        for stats, count in ((False, 1), (True, 3), (0, 1), (1, 3), ("1", 3), ("0", 1)):
            outputs = groupnorm(x, gamma, beta, groups=2, stats=stats)
            assert len(outputs if isinstance(outputs, tuple) else (outputs,)) == count, stats
        for wrong in (1.0, "yes", 2):
            with pytest.raises(ValueError, match="stats"):
                groupnorm(x, gamma, beta, groups=2, stats=wrong)


def test_a_tensor_and_a_word_in_its_place_are_not_taken_for_each_other():
    a, b = ones((2, 8)), ones((3, 8))
    for _ in range(2):
        assert (gemm(a, b) == 8).all()
        assert (gemm(a, b, bias=False) == 8).all() and (gemm(a, b, None) == 8).all()
        assert (gemm(a, b, bias=ones(3)) == 9).all()
        with pytest.raises(ValueError, match="bias"):
            gemm(a, b, bias=True)


def test_the_outputs_type_and_the_variant_are_asked_each_time():
    t = ones(2)
    wanted = noisefloor.ops.timestep_embedding(t, channels=8, dtype="fp32")
    outs = {"fp32": np.zeros((2, 8), np.float32), "fp16": np.zeros((2, 8), np.float16)}
    for _ in range(2):
        for out in outs.values():
            assert noisefloor.ops.timestep_embedding(t, channels=8, out=out) is out and np.allclose(out, wanted, atol=1e-3)
            out[:] = 0
        for dtype, out in outs.items():
            assert noisefloor.ops.timestep_embedding(t, channels=8, dtype=dtype).dtype == out.dtype
        with pytest.raises(ValueError, match="dtype"):
            noisefloor.ops.timestep_embedding(t, channels=8)
        assert (gemm(t[None], t[None], variant="host") == 2).all()
        with pytest.raises(ValueError, match="gemm has no variant 'hots'"):
            gemm(t[None], t[None], variant="hots")


def test_a_plan_is_asked_each_time(tmp_path):
    x, w = ones((2, 8)), ones((3, 8))
    header = "op,dtype,problem,variant\n"
    (tmp_path / "env.json").write_text('{"device": "another one"}')
    (tmp_path / "plan.csv").write_text(header)
    plan = noisefloor.Plan(tmp_path / "plan.csv")
    for _ in range(2):
        assert (gemm(x, w) == 8).all()
        with pytest.raises(ValueError, match="is a plan for another one"):
            gemm(x, w, plan=plan)
        with noisefloor.use_plan(plan), pytest.raises(ValueError, match="is a plan for another one"):
            gemm(x, w)


def test_what_is_remembered_is_bounded():
    bound, w = _signatures.bound("gemm"), ones((3, 8))
    kept = []
    for rows in range(1, 2300):
        assert (gemm(ones((rows, 8)), w) == 8).all()
        kept.append(bound.calls_kept)
    assert max(kept) == 1024 and min(kept[1024:]) < 1024


# ---- Tensors by DLPack's exchange in C

def test_a_type_that_exchanges_in_c_is_asked_by_it():
    kind = make_type()
    a, b, out = kind(ones((2, 8))), kind(ones((3, 8))), kind(ones((2, 3)))
    for _ in range(2):
        assert gemm(a, b, out=out) is out and (out.array == 8).all()
        out.array[:] = 0
    # What is written is asked whether it may be, which no loan says.
    assert a.asked == b.asked == ["borrowed"] * 2 and out.asked == ["__dlpack__"] * 2


@pytest.mark.parametrize("how", [{"fails": True}, {"major": 2}, {"borrows": False}])
def test_one_that_cannot_is_asked_by_dlpack(how):
    kind = make_type(**how)
    a, b, out = kind(ones((2, 8))), kind(ones((3, 8))), ones((2, 3))
    assert (gemm(a, b, out=out) == 8).all()
    assert a.asked[-1] == "__dlpack__" and ("borrowed" in a.asked) == ("fails" in how)


def test_what_does_not_fit_is_refused_by_name():
    kind, (a, b) = make_type(), (ones((2, 8)), ones((3, 8)))
    for given, text in ((a.T, "'a' must be contiguous in row-major order; its shape is [8, 2], its strides are [1, 8]"),
                        (ones(17)[1:].reshape(2, 8), "'a' must begin at a multiple of 16 bytes"), (ones((0, 8)), "'a' is empty"),
                        (ones((2, 8), np.int64), "'a' is int64"), (np.array(1, np.float32), "'a' "),
                        (ones((1,) * 9), "'a' has 9 dimensions, and no op takes more than 8")):
        with pytest.raises(ValueError) as refused:
            gemm(kind(given), b)
        assert text in str(refused.value)
    out = ones((2, 3))
    out.flags.writeable = False
    with pytest.raises(ValueError, match="output 0 is read-only, and would be written"):
        gemm(a, b, out=kind(out))
    with pytest.raises(ValueError, match="output 'd' shares memory with 'a'; no op works in place"):
        gemm(kind(b), kind(ones((8, 8))), out=kind(b))


def test_many_types_are_told_apart():
    kinds = [make_type(fails=bool(i % 2)) for i in range(20)]
    for kind in kinds * 2:
        a = kind(ones((2, 8)))
        assert (gemm(a, kind(ones((3, 8))), out=ones((2, 3))) == 8).all()
        assert ("__dlpack__" in a.asked) == bool(kinds.index(kind) % 2)


def test_pytorch_needs_no_call_of_dlpack(monkeypatch):
    torch = pytest.importorskip("torch")
    if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        pytest.skip("this PyTorch has no exchange in C")

    def refuse(*_, **__):
        raise AssertionError("__dlpack__ was called")

    monkeypatch.setattr(torch.Tensor, "__dlpack__", refuse)
    weight = torch.nn.Parameter(torch.ones(3, 8))
    with torch.no_grad():
        assert (gemm(torch.ones(2, 8), weight) == 8).all()
    with pytest.raises(ValueError, match="'b' requires a gradient"):
        gemm(torch.ones(2, 8), weight)


def test_an_output_of_inference_mode_has_no_version_to_count():
    torch = pytest.importorskip("torch")
    with torch.inference_mode():
        out = torch.zeros(2, 3)
        assert (gemm(torch.ones(2, 8), torch.ones(3, 8), out=out) == 8).all()
    assert (gemm(torch.ones(2, 8), 2 * torch.ones(3, 8), out=out) == 16).all()
    kept = torch.zeros(2, 3)
    version = kept._version
    gemm(torch.ones(2, 8), torch.ones(3, 8), out=kept)
    assert kept._version == version + 1
