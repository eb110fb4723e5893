"""PyTorch's side of a sweep without a GPU: problems, the answers to what is asked, and, where PyTorch is there, the ops on the CPU.

tests/python/test_references.py holds the formulas to the ops' oracles."""

import dataclasses
import functools
import io
import json
import math
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from unittest import mock

import pytest

from baselines.pytorch import worker
from baselines.pytorch.errors import BadQuestion, NotBuilt, Unsupported
from baselines.pytorch.problems import read_problem
from tests.cli.program import PROGRAM, needs_program

try:
    import torch

    from baselines.pytorch import case, networks
except ImportError:
    torch = None

of_torch = pytest.mark.skipif(torch is None or not Path(PROGRAM).is_file(), reason="PyTorch is not installed, or NOISEFLOOR_BINARY names no program")
# A row of ordinary size, in the order of kernels/sampler_step/coefficients.h: model_x model model_cond limit | x x0 history noise |
# previous history_x history_x0 unused.
COEFFICIENTS = [1.1, -0.6, -0.4, None, 0.7, 0.4, -0.2, 0.3, 0.25, 0.8, -0.5, 0]
SMALL = {
    "gemm": {"m": 3, "n": 4, "k": 5},
    "attention": {"batch": 2, "heads": 3, "seq_q": 5, "seq_kv": 7, "dim": 8},
    "temporal_attention": {"batch": 2, "frames": 5, "hw": 3, "heads": 2, "dim": 8},
    "conv2d": {"n": 2, "h": 5, "w": 6, "cin": 12, "cout": 10},
    "conv_transpose2d": {"n": 2, "h": 5, "w": 3, "cin": 12, "cout": 10},
    "conv3d_temporal": {"batch": 2, "frames": 5, "hw": 6, "cin": 12, "cout": 10},
    "groupnorm": {"n": 2, "hw": 12, "channels": 8, "groups": 4},
    "groupnorm_backward": {"n": 2, "hw": 256, "channels": 32, "groups": 4},
    "sampler_step": {"batch": 2, "elements": 1000, "solver": "ddpm"},
    "layernorm": {"rows": 6, "channels": 40},
    "layernorm_backward": {"rows": 6, "channels": 40},
    "elementwise": {"op": "silu", "n": 2, "hw": 12, "channels": 8},
    "resample": {"op": "nearest_up2", "n": 2, "h": 4, "w": 6, "channels": 8},
    "timestep_embedding": {"batch": 3, "channels": 16},
    "q_sample": {"batch": 2, "elements": 1000},
    "edm_precondition": {"side": "input", "batch": 2, "elements": 100},
    "conv2d_dgrad": {"n": 2, "h": 5, "w": 6, "cin": 12, "cout": 10},
    "conv2d_wgrad": {"n": 2, "h": 5, "w": 6, "cin": 12, "cout": 10},
    "training_batch": {"batch": 40, "h": 5, "w": 6, "channels": 3, "classes": 4, "dataset": 9},
    "mse_loss": {"batch": 3, "elements": 100},
    "grad_norm": {"elements": 1000},
    "adamw": {"elements": 1000},
    "network": {"name": "digits", "batch": 2, "height": 8, "width": 8},
}


@functools.cache
def listed(op, fields):
    """What the program says of a problem: its fields, tolerances and inputs."""
    with tempfile.TemporaryDirectory() as folder:
        names, values = zip(*fields)
        Path(folder, f"{op}.csv").write_text(f"network,{','.join(names)},count\nsmall,{','.join(map(str, values))},1\n")
        result = subprocess.run([PROGRAM, "list", "problems", "--problems", folder, "--format", "json"], capture_output=True, text=True, check=True)
    return json.loads(result.stdout)


def record(op="gemm", /, **fields):
    """Of a sampler's step NaN in every other step's coefficients: only the problem's own may be read."""
    result = dict(listed(op, tuple({**SMALL[op], **fields}.items())))
    if op == "sampler_step":
        fields, row = result["fields"], list(COEFFICIENTS)
        row[3] = int(fields["clamp"]) or None
        if fields["prediction"] == "x0":
            row[:2] = [0, 1]
        if fields["solver"] == "dpmpp_2m":
            row[9:11] = [0, 1]
        if not float(fields["guidance"]):
            row[2] = 0
        result["filled"] = {"coefficients": [*[math.nan] * 12 * 10, *row, *[math.nan] * 12 * 39]}
        result["normal"] = {**result["normal"], "x": [0, 1.5]}
    return result


def problem(name, /, dtype="bf16", **fields):
    return read_problem(record(name, **fields), case.DTYPES[dtype] if torch else None)


@needs_program
def test_a_problem_is_read_and_what_is_wrong_is_named():
    parsed = read_problem({**record("gemm", act="silu", scale="0.5"), "filled": {"table": [1, None]}, "normal": {"a": [0, 2]}})
    assert (parsed.integer("m"), parsed.real("scale"), parsed.flag("bias"), parsed.choice("act")) == (3, 0.5, True, "silu")
    assert (parsed.filled, parsed.normal) == ({"table": [1.0, math.inf]}, {"a": (0.0, 2.0)})
    broken = record()
    del broken["op"]
    for given, says in ((broken, "lacks 'op'"), ({**record(), "filled": {"coefficients": ["many"]}}, "not a problem's record")):
        with pytest.raises(BadQuestion, match=says):
            read_problem(given)
    with pytest.raises(BadQuestion, match="no field 'groups'"):
        parsed.integer("groups")


def test_each_line_is_answered_whatever_is_raised():
    def answer(question):
        if question["ask"] == "fail":
            raise RuntimeError("CUDA error")
        return {"us": [1.0]}

    answers = mock.Mock(facts=lambda: {"pytorch": "2"}, answer=answer, failure=lambda error: {"failed": "cuda_error", "reason": str(error)})
    written = []
    worker.serve(answers, io.StringIO('{"ask": "cold", "number": 1}\n{"ask": "fail", "number": 2}\nnot JSON\n'), written.append)
    assert written[:3] == [{"facts": {"pytorch": "2"}}, {"us": [1.0], "number": 1}, {"failed": "cuda_error", "reason": "CUDA error", "number": 2}]
    assert written[3]["failed"] == "cuda_error"


def test_every_op_of_the_catalogue_has_a_file():
    ops = {path.parent.name for path in Path("kernels").glob("*/variants.cpp")} | {"network"}
    assert ops == {path.stem for path in Path("baselines/pytorch/ops").glob("[a-z]*.py")}


PROBLEMS = [
    *(("gemm", {"act": act, "scale": scale, "bias": bias, "residual": residual})
      for act in ("none", "silu", "gelu", "gelu_tanh", "geglu") for scale, bias, residual in ((1, 1, 0), (0.5, 1, 1), (0.5, 0, 0))),
    ("gemm", {"act": "silu", "image_shift": 1, "images": 3, "residual": 1}),
    ("gemm", {"scale": 0.5, "bias": 0, "image_shift": 1}),
    ("gemm", {"act": "gelu", "residual": 1, "blend": 1}),
    ("gemm", {"image_shift": 1, "images": 3, "n": 16, "part_columns": 8}),
    ("gemm", {"n": 16, "part_columns": 8}),
    ("gemm", {"layout": "nn", "bias": 0, "residual": 1}),
    ("gemm", {"layout": "tn", "bias": 0, "scale": 0.5, "to": "fp32", "row_sums": 1}),
    ("gemm", {"to": "fp32", "residual": 1}),
    ("conv2d", {"stride": 2, "act": "silu"}),
    ("conv2d", {"upsample": 1, "residual": 1, "act": "relu"}),
    ("conv2d", {"kernel": 1, "pad": 0, "affine": 1, "image_shift": 1, "gain": 0.5, "bias": 0}),
    *(("conv2d", {"norm": norm}) for norm in ("affine", "affine+silu")),
    ("conv2d", {"side": 7, "residual": 1}),
    ("conv2d", {"side": 7, "side_skip": 4, "stride": 2, "act": "silu", "affine": 1}),
    ("conv2d_dgrad", {"stride": 2, "scale": 0.5, "residual": 1, "residual_scale": -2}),
    ("conv2d_dgrad", {"upsample": 1}),
    ("conv2d_dgrad", {"column": 1}),
    ("conv2d_wgrad", {"stride": 2, "scale": 0.5, "bias": 0}),
    ("conv2d_wgrad", {"upsample": 1, "image_shift": 1}),
    ("conv2d_wgrad", {"column": 1}),
    ("conv_transpose2d", {"act": "silu"}),
    ("conv_transpose2d", {"kernel": 2, "act": "relu", "bias": 0}),
    ("conv3d_temporal", {"residual": 1}),
    ("conv3d_temporal", {"image_shift": 1, "residual": 1}),
    ("conv3d_temporal", {"image_shift": 1, "bias": 0}),
    *(("groupnorm", {"fusion": fusion, "stats": stats}) for fusion in ("none", "silu", "silu+ss") for stats in (0, 1)),
    ("groupnorm", {"fusion": "silu+ss", "packed": 1}),
    *((op, {"fusion": "silu+ss", "fp32_affine": 1}) for op in ("groupnorm", "groupnorm_backward")),
    *(("groupnorm", {"fusion": fusion, "stats": 1, "skip_channels": 5}) for fusion in ("none", "silu+ss")),
    *(("groupnorm", {"fusion": fusion, "stats": stats, "hw": 48, "down_w": 6}) for fusion, stats in (("none", 0), ("silu", 1), ("silu+ss", 0))),
    *(("groupnorm", {"fusion": fusion, "coefficients": 1, "stats": 1, "hw": 48}) for fusion in ("silu", "silu+ss")),
    *(("groupnorm_backward", {"fusion": fusion, "residual": residual, "packed": int(fusion == "silu+ss" and residual)})
      for fusion in ("none", "silu", "silu+ss") for residual in (0, 1)),
    *((op, {"layout": layout, "scale": scale, **({"seq_kv": 5} if op == "attention" else {})})
      for op in ("attention", "temporal_attention") for layout in ("separate", "packed_3hd", "packed_h3d", "packed_hd3") for scale in (0, 2)),
    ("attention", {"seq_q": 1, "seq_kv": 1}),
    ("sampler_step", {"noise": "given", "guidance": 3, "clamp": 1, "blend": 0.25}),
    ("sampler_step", {"solver": "edm_heun"}),
    ("sampler_step", {"solver": "edm_heun", "half": "second", "prediction": "x0"}),
    ("sampler_step", {"solver": "dpmpp_2m", "prediction": "v"}),
    *(("layernorm", {"images": 3, "fusion": fusion, "residual": residual, "affine": affine})
      for fusion in ("none", "scale_shift") for residual in (0, 1) for affine in (0, 1)),
    *(("layernorm_backward", {"images": 3, "fusion": fusion, "residual": affine, "affine": affine}) for fusion in ("none", "scale_shift") for affine in (0, 1)),
    *(("elementwise", {"op": op}) for op in ("silu_fma", "geglu", "relu", "silu", "nchw_to_nhwc", "nhwc_to_nchw")),
    *(("elementwise", {"op": f"{op}_backward"}) for op in ("relu", "silu", "gelu", "geglu")),
    ("elementwise", {"op": "scale", "scale": -0.5}),
    ("elementwise", {"op": "cast", "to": "fp32"}),
    ("elementwise", {"op": "silu_fma", "broadcast": 1}),
    ("elementwise", {"op": "add", "scale": 0.5**0.5}),
    *(("resample", {"op": op, "skip_channels": skip}) for op, skip in (("nearest_up2", 0), ("average_down2", 0), ("concat", 5), ("split", 5))),
    *(("resample", {"op": op, "scale": scale}) for op, scale in (("nearest_up2", 0.25), ("average_down2", 0.3))),
    *(("timestep_embedding", {"kind": kind, "order": order, "endpoint": int(kind == "sinusoidal"), "hidden": hidden, "final_silu": int(hidden > 0)})
      for kind in ("sinusoidal", "fourier") for order in ("cos_sin", "sin_cos") for hidden in (0, 24)),
    ("q_sample", {}),
    *(("edm_precondition", {"side": side}) for side in ("input", "output", "gradient")),
    *(("mse_loss", {"weight": weight}) for weight in ("none", "edm")),
    *(("grad_norm", {"clip": clip}) for clip in (0, 1, 100)),
    ("adamw", {"decay": 0.1}),
    ("adamw", {"beta2": 0.99, "ema": 1, "copy": 1}),
]
NETWORKS = [("network", {}), ("network", {"name": "moving-digits", "frames": 5, "width": 12}), ("network", {"batch": 8, "training": 1}),
            ("network", {"name": "moving-digits", "batch": 2, "training": 1})]


def op_of(name):
    return import_module(f"baselines.pytorch.ops.{name}")


def outputs_of(parsed):
    op = op_of(parsed.op)
    inputs = case.make_inputs(op, parsed, torch.device("cpu"), torch.Generator().manual_seed(1))
    return op, inputs, op.build(parsed)(inputs)


def judge(parsed, dtype, outputs, op, inputs):
    """What is wrong, by the allowance of bench/measure/worker.cpp."""
    allowed, roundings = record(parsed.op, **parsed.fields)["dtypes"][dtype], case.roundings(op, parsed, compiled=False)
    found = case.compare(case.judged(op, parsed, outputs), case.reference(op, parsed, inputs))
    for error in found.get("errors", []):
        if error["max"] is None or error["max"] > allowed["max_error"] * (1 + 1.5 * (roundings - 1)):
            return f"error {error['max']}"
        if error["l2"] is None or error["l2"] > allowed["l2_error"] * roundings**0.5:
            return f"relative L2 error {error['l2']}"
    return found.get("wrong", "")


@of_torch
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("name, fields", PROBLEMS + NETWORKS)
def test_every_problem_is_within_its_tolerance(name, fields, dtype):
    parsed = problem(name, dtype, **fields)
    op, inputs, outputs = outputs_of(parsed)
    assert judge(parsed, dtype, outputs, op, inputs) == ""
    fused = case.roundings(op, parsed, compiled=True)
    three = fields.get("act") == "geglu" or name == "q_sample" or name == "conv2d" and {"side", "norm"} & fields.keys() or name == "gemm" and "blend" in fields
    three = three or name.endswith("_backward")
    assert fused <= (6 if name == "layernorm" and "residual" in fields else 3 if three else 2) and fused <= case.roundings(op, parsed, compiled=False)


@of_torch
def test_attentions_reference_is_the_same_in_parts(monkeypatch):
    parsed = problem("attention", "fp32")
    op, inputs, _ = outputs_of(parsed)
    whole, row = op.reference(parsed, inputs), 3 * 7
    for chunk in (1, 2 * row, 5 * row):
        monkeypatch.setattr(op, "CHUNK", chunk)
        torch.testing.assert_close(op.reference(parsed, inputs), whole, rtol=1e-12, atol=1e-14)
    monkeypatch.setattr(op, "MOST", 2 * 3 * 5 * 7 // 2)  # half of its logits: queries 0, 2 and 4
    torch.testing.assert_close(op.reference(parsed, inputs), op.judged(parsed, whole), rtol=1e-12, atol=1e-14)
    assert op.judged(parsed, whole)[0].shape == (2, 3, 3, 8)


@of_torch
@pytest.mark.parametrize("damage", ["element", "nan", "shape", "count", "formula"])
def test_wrong_results_are_caught(damage):
    for name, fields, others in (("gemm", {"act": "silu"}, {"act": "gelu"}), ("conv2d", {"side": 7}, {"gain": 1.1}),
                                 ("groupnorm", {"fusion": "silu", "stats": 1}, {"groups": 2})):  # fmt: skip
        parsed = problem(name, **fields)
        op, inputs, outputs = outputs_of(parsed)
        last = outputs[-1].contiguous().clone()
        if damage == "element":
            last.view(-1)[-1] += 1 + last.view(-1)[-1].abs()
        elif damage == "nan":
            last.view(-1)[0] = math.nan
        outputs = {"shape": (*outputs[:-1], last[:1]), "count": outputs[1:]}.get(damage, (*outputs[:-1], last))
        if damage == "formula":
            outputs = op.build(problem(name, **{**fields, **others}))(inputs)
        assert judge(parsed, "bf16", outputs, op, inputs) != ""


@of_torch
def test_a_network_has_every_weight_and_a_wrong_one_is_caught():
    for dtype in ("bf16", "fp32"):
        parsed = problem("network", dtype)
        op, inputs, _ = outputs_of(parsed)
        parameters = dict(inputs["network"].named_parameters())
        assert all(tensor.abs().max() > 0 for tensor in parameters.values())
        for name in ("model.enc.8x8_block0.conv1.weight", "model.dec.4x4_in0.proj.weight", "model.dec.8x8_aux_norm.weight", "model.map_label.weight"):
            kept = parameters[name].clone()
            parameters[name].mul_(1.5)
            assert "error" in judge(parsed, dtype, op.build(parsed)(inputs), op, inputs), name
            parameters[name].copy_(kept)


@of_torch
def test_every_network_of_the_program_has_its_module_on_the_device():
    """Modules of a library may make their parameters on the CPU, whatever the device of the block is."""
    from baselines.pytorch.ops import network

    lines = subprocess.run([PROGRAM, "list", "ops", "--format", "json"], capture_output=True, text=True, check=True).stdout.splitlines()
    fields = next(op["fields"] for op in map(json.loads, lines) if op["op"] == "network")
    assert set(networks.NETWORKS) == set(next(field["choices"] for field in fields if field["name"] == "name"))
    for name in networks.NETWORKS:
        try:
            made = network.build_on(name, "meta")
        except Unsupported as error:
            assert "needs diffusers" in str(error)
        else:
            assert {str(one.device) for one in (*made.parameters(), *made.buffers())} == {"meta"}


@of_torch
@pytest.mark.parametrize("fields", [{"name": "sd-vae", "height": 8, "width": 16}, {"name": "svd-vae", "batch": 1, "height": 8, "width": 8, "frames": 3}])
def test_networks_of_a_library_take_the_inputs_by_their_names(fields):
    pytest.importorskip("diffusers")
    parsed = problem("network", **fields)
    op, inputs, outputs = outputs_of(parsed)
    assert judge(parsed, "bf16", outputs, op, inputs) == ""
    assert outputs[0].shape[-3:] == (3, 8 * fields["height"], 8 * fields["width"])


@of_torch
def test_what_the_program_does_not_say_is_refused():
    for name, fields in (("network", {}), ("sampler_step", {"solver": "ddim"}), ("q_sample", {})):
        with pytest.raises(Unsupported, match="no values of"):
            outputs_of(dataclasses.replace(problem(name, **fields), filled={}))
    with pytest.raises(Unsupported, match="unknown network 'digit'"):
        outputs_of(dataclasses.replace(problem("network"), fields={**problem("network").fields, "name": "digit"}))


@of_torch
@pytest.mark.parametrize("fields", [{"shifted": 0.3, "flipped": 0.5, "unlabelled": 0.2}, {"level": "ddpm", "schedule": "cosine"}])
def test_a_training_batch_is_judged_by_what_it_must_be(fields):
    parsed = problem("training_batch", "fp32", batch=500, **fields)
    op, inputs, outputs = outputs_of(parsed)
    assert case.reference(op, parsed, inputs) is None and op.check(parsed, inputs, outputs) == ""
    for number, wrong in ((0, outputs[0] + 0.1), (1, outputs[1] * 1.02), (len(outputs) - 1, outputs[-1] * 0.5)):
        assert op.check(parsed, inputs, (*outputs[:number], wrong, *outputs[number + 1:])) != "", number
    assert "outputs" in op.check(parsed, inputs, outputs[1:])


@of_torch
def test_drawn_noise_must_be_normal():
    parsed = problem("sampler_step", "fp32", noise="drawn", elements=100_000)
    op, inputs, outputs = outputs_of(parsed)
    assert case.reference(op, parsed, inputs) is None and op.check(parsed, inputs, outputs) == ""
    [quiet] = op.build(problem("sampler_step", "fp32", solver="ddim", elements=100_000))(inputs)
    noise = torch.randn(quiet.shape, generator=torch.Generator().manual_seed(2))
    assert op.check(parsed, inputs, (quiet + 0.3 * noise,)) == ""
    loud = noise.clone()
    loud[0, 0] = 30
    for given, says in (((quiet,), "standard deviation"), ((quiet + 0.31 * noise,), "standard deviation"), ((outputs[0] + 0.01,), "mean"),
                        ((quiet + 0.3 * loud,), "an element of"), ((quiet, quiet), "2 outputs")):  # fmt: skip
        assert says in op.check(parsed, inputs, given)


@pytest.fixture
def answers():
    """The worker's answers on the CPU, untimed."""
    return worker.Answers(torch.device("cpu"))


def ready(answers, name, **fields):
    return answers.answer({"ask": "ready", "variant": "torch_eager", "dtype": "bf16", "problem": record(name, **fields)})


@of_torch
def test_a_case_is_verified_and_judged_again_and_released(answers):
    with mock.patch.object(case, "reference", wraps=case.reference) as reference:
        answer = ready(answers, "groupnorm", fusion="silu")
        again = answers.answer({"ask": "judge"})
    assert reference.call_count == 1  # the inputs are the same
    assert len(answer["errors"]) == 1 and answer["roundings"] > 1 and again["errors"] == answer["errors"]
    answers.case.outputs[0].fill_(math.nan)
    assert answers.answer({"ask": "judge"})["errors"] == [{"max": None, "l2": None}]
    assert "judged" in ready(answers, "sampler_step", noise="drawn", elements=100_000)
    answers.answer({"ask": "release"})
    assert answers.case is None


@of_torch
@pytest.mark.parametrize("error", [None, RuntimeError("no")])
def test_cudnn_searches_for_the_row_and_not_for_its_reference(answers, error, monkeypatch):
    cudnn, seen = torch.backends.cudnn, []

    def reference(*of, formula=case.reference):
        seen.append((cudnn.benchmark, cudnn.deterministic))
        if error:
            raise error
        return formula(*of)

    monkeypatch.setattr(cudnn, "benchmark", True)
    monkeypatch.setattr(case, "reference", reference)
    try:
        ready(answers, "conv2d")
    except RuntimeError as raised:
        assert raised is error
    assert (seen, cudnn.benchmark, cudnn.deterministic) == ([(False, True)], True, False)


@of_torch
def test_what_fails_is_an_outcome(answers):
    for error, outcome in ((Unsupported("no"), "unsupported_problem"), (NotBuilt("no"), "not_built"), (BadQuestion("no"), "unsupported_problem"),
                           (torch.cuda.OutOfMemoryError("no"), "out_of_memory"), (RuntimeError("no\nmore"), "cuda_error")):
        assert answers.failure(error) == {"failed": outcome, "reason": "no"}
    with pytest.raises(Unsupported, match="there is no baselines/pytorch/ops/gem.py"):
        answers.answer({"ask": "ready", "variant": "torch_eager", "dtype": "bf16", "problem": {**record(), "op": "gem"}})
    with pytest.raises(BadQuestion, match="'cold' without a case"):
        answers.answer({"ask": "cold", "samples": 1})


@of_torch
@pytest.mark.parametrize("asked, says", [(["adm64-b1"], "no training step"), (["nothing"], "nothing"), (["digits-train-b512", "--devices", "0"], "--devices 0")])
def test_what_ddp_cannot_time_is_named(asked, says):
    refused = subprocess.run([sys.executable, "-m", "baselines.pytorch.ddp", *asked], capture_output=True, text=True)
    assert refused.returncode == 2 and says in refused.stderr, refused.stderr
