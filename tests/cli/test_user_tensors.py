"""`noisefloor run` on files of Python's safetensors package: inputs in, outputs out, and files that are not safetensors."""

import json
import os
import struct

import numpy
import pytest
import safetensors
from safetensors.numpy import load_file, save_file

from tests.cli import program

pytestmark = program.needs_program
RANDOM = numpy.random.default_rng(7)


def run(*arguments):
    return program.run("run", "--device", "host", *arguments)


def normal(*shape, dtype=numpy.float32):
    return RANDOM.standard_normal(shape).astype(dtype)


def gemm_inputs(dtype=numpy.float32):
    return {"a": normal(33, 24, dtype=dtype), "b": normal(40, 24, dtype=dtype), "bias": normal(40, dtype=dtype)}


@pytest.mark.parametrize("dtype, name, tolerance", [(numpy.float32, "fp32", 1e-5), (numpy.float16, "fp16", 2e-3)])
def test_gemm_gives_numpys_product(dtype, name, tolerance, tmp_path):
    tensors = gemm_inputs(dtype)
    save_file(tensors, tmp_path / "in.safetensors", metadata={"made": "by a test"})
    out = tmp_path / "out.safetensors"
    result = run("gemm", "--input", tmp_path / "in.safetensors", "--output", out)
    assert result.returncode == 0, result.stderr
    assert f"gemm m=33,n=40,k=24, {name}" in result.stderr
    assert "relative L2 error" in result.stdout and "the output of host, d" in result.stdout
    a, b, bias = (tensors[key].astype(numpy.float64) for key in ("a", "b", "bias"))
    product = load_file(out)["d"]
    assert product.dtype == dtype
    numpy.testing.assert_allclose(product, a @ b.T + bias, rtol=tolerance, atol=10 * tolerance)
    with safetensors.safe_open(out, "numpy") as file:
        assert file.metadata()["layout"] == "channels-last"
        assert file.metadata()["variant"] == "host" and file.metadata()["problem"] == "m=33,n=40,k=24"


def test_bf16_and_data_at_an_odd_place(tmp_path):
    """numpy has no bf16, so the bytes are laid out here; a header of odd length puts them at an odd address."""
    bits = lambda array: (array.view(numpy.uint32) >> 16).astype(numpy.uint16)  # truncated, exactly a bf16
    tensors = {name: bits(array) for name, array in gemm_inputs().items()}
    header, data = {}, b""
    for name, array in tensors.items():
        header[name] = {"dtype": "BF16", "shape": array.shape, "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (1 - len(text) % 2)
    (tmp_path / "in").write_bytes(struct.pack("<Q", len(text)) + text + data)
    result = run("gemm", "--input", tmp_path / "in", "--output", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    assert "bf16" in result.stderr
    raw = (tmp_path / "out").read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    entry = json.loads(raw[8 : 8 + length])["d"]
    assert entry["dtype"] == "BF16" and entry["shape"] == [33, 40]
    assert (8 + length) % 8 == 0
    widen = lambda array: (array.astype(numpy.uint32) << 16).view(numpy.float32)  # noqa: E731
    a, b, bias = (widen(tensors[key]).astype(numpy.float64) for key in ("a", "b", "bias"))
    product = widen(numpy.frombuffer(raw[8 + length :], numpy.uint16).reshape(33, 40))
    numpy.testing.assert_allclose(product, a @ b.T + bias, rtol=0.01, atol=0.03)


def test_every_output_of_an_op_is_written(tmp_path):
    tensors = {"x": normal(2, 16, 64) + 3, "gamma": normal(64), "beta": normal(64)}
    save_file(tensors, tmp_path / "in")
    result = run("groupnorm", "--input", tmp_path / "in", "--problem", "groups=8,stats=1", "--output", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    outputs = load_file(tmp_path / "out")
    assert sorted(outputs) == ["mean", "rstd", "y"]
    groups = tensors["x"].reshape(2, 16, 8, 8).astype(numpy.float64)
    numpy.testing.assert_allclose(outputs["mean"], groups.mean(axis=(1, 3)), rtol=1e-5)


def test_what_shapes_do_not_say_is_asked_for(tmp_path):
    """Which problem tensors are: tests/bench/tensors/problem_inference_test.cpp."""
    save_file({"x": normal(2, 3, 4)}, tmp_path / "in")
    asked = run("elementwise", "--input", tmp_path / "in")
    assert asked.returncode == 2 and "give --problem its op (cast, geglu, nchw_to_nhwc, nhwc_to_nchw, relu, scale, silu)" in asked.stderr
    assert run("elementwise", "--input", tmp_path / "in", "--problem", "op=relu").returncode == 0
    save_file({"x": normal(2, 3, 4)}, tmp_path / "in", metadata={"layout": "channels-first"})
    refused = run("elementwise", "--input", tmp_path / "in", "--problem", "op=relu")
    assert refused.returncode == 2 and "what is read here is channels-last" in refused.stderr


def test_missing_tensors_are_made_only_when_asked(tmp_path):
    tensors = {"x": normal(2, 500), "model_output": normal(2, 500)}
    save_file(tensors, tmp_path / "in")
    arguments = ["sampler_step", "--input", tmp_path / "in", "--problem", "solver=ddim"]
    refused = run(*arguments)
    assert refused.returncode == 2
    assert "its 'coefficients' [50, 12] is missing (--random coefficients makes it)" in refused.stderr
    assert run(*arguments, "--random", "coefficients").returncode == 0
    twice = run(*arguments, "--random", "coefficients,x")
    assert twice.returncode == 2 and "tensor 'x' is in the file, and in --random too" in twice.stderr


@pytest.mark.parametrize("change, arguments, says", [
    (lambda t: t, ["--problem", "m=34"], "'a' is [33, 24], there [34, 24] (m=34); m=34 clashes with them, m=33 would fit"),
    (lambda t: t, ["--dtype", "bf16"], "'a' is F32, not BF16"),
    (lambda t: t, ["--variant", "hots"], "did you mean 'host'"),
    (lambda t: {**t, "b": normal(40, 24, dtype=numpy.float16)}, [], "'b' is F16, not F32"),
    (lambda t: {**t, "bias": numpy.full(40, numpy.inf, numpy.float32)}, [], "'bias': element 0 is inf"),
])
def test_what_does_not_fit_is_refused_and_nothing_overwritten(change, arguments, says, tmp_path):
    save_file(change(gemm_inputs()), tmp_path / "in")
    (tmp_path / "out").write_text("precious")
    result = run("gemm", "--input", tmp_path / "in", "--output", tmp_path / "out", *arguments)
    assert result.returncode == 2, result.stdout
    assert says in result.stderr
    assert (tmp_path / "out").read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_files_that_are_broken_are_refused(tmp_path):
    (tmp_path / "text").write_bytes(b"no tensors at all")
    os.mkfifo(tmp_path / "pipe")
    for name in ("missing", ".", "pipe", "text"):
        result = run("gemm", "--input", tmp_path / name)
        assert result.returncode == 2 and result.stderr.startswith("noisefloor: "), result


def test_a_case_by_its_name():
    result = run("gemm/m=8,n=8,k=8/fp32/host", "--profile")
    assert result.returncode == 0 and "gemm/m=8,n=8,k=8/fp32/host: launched" in result.stdout
    for name, says in (("gemm/m=8/fp32", "is not a case"), ("gemm/m=8,n=8,k=8/fp32/hots", "did you mean 'host'")):
        refused = run(name)
        assert refused.returncode == 2 and says in refused.stderr
