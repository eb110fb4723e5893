"""PyTorch's side of a sweep without a GPU: problems, the answers to what is asked, and, where PyTorch is there, the ops on the CPU.

Run from the root of the repository: NOISEFLOOR_BINARY=PROGRAM python3 -m unittest tests/baselines/test_pytorch.py
"""

import dataclasses
import functools
import io
import json
import math
import os
import subprocess
import tempfile
import unittest
from importlib import import_module
from pathlib import Path
from unittest import mock

from baselines.pytorch import worker
from baselines.pytorch.errors import BadQuestion, NotBuilt, Unsupported
from baselines.pytorch.problems import read_problem

try:
    import torch

    from baselines.pytorch import networks
except ImportError:
    torch = None

PROGRAM = os.environ.get("NOISEFLOOR_BINARY", "")
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
    "sampler_step": {"batch": 2, "elements": 1000, "solver": "ddpm"},
    "layernorm": {"rows": 6, "channels": 40},
    "elementwise": {"op": "silu", "n": 2, "hw": 12, "channels": 8},
    "resample": {"op": "nearest_up2", "n": 2, "h": 4, "w": 6, "channels": 8},
    "timestep_embedding": {"batch": 3, "channels": 16},
    "q_sample": {"batch": 2, "elements": 1000},
    "edm_precondition": {"side": "input", "batch": 2, "elements": 100},
    "network": {"name": "digits", "batch": 2, "height": 8, "width": 8},
}


def coefficient_table(row, step=10, steps=50):
    """NaN in every other step's row: only the problem's own may be read."""
    return [*[math.nan] * 12 * step, *row, *[math.nan] * 12 * (steps - step - 1)]


ALLOWED = {}  # by op and problem


@functools.cache
def listed(op, fields):
    """What the program says of a problem: its fields, tolerances and inputs."""
    with tempfile.TemporaryDirectory() as folder:
        names, values = zip(*fields)
        Path(folder, f"{op}.csv").write_text(f"network,{','.join(names)},count\nsmall,{','.join(map(str, values))},1\n")
        result = subprocess.run([PROGRAM, "list", "problems", "--problems", folder, "--format", "json"], capture_output=True, text=True, check=True)
    found = json.loads(result.stdout)
    ALLOWED[op, found["problem"]] = found["dtypes"]
    return found


def record(op="gemm", /, **fields):
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
        result["filled"] = {"coefficients": coefficient_table(row)}
        result["normal"] = {**result["normal"], "x": [0, 1.5]}
    return result


def problem(name, /, **fields):
    return read_problem(record(name, **fields))


@unittest.skipIf(not Path(PROGRAM).is_file(), "NOISEFLOOR_BINARY names no program")
class Problems(unittest.TestCase):
    def test_reads_a_record(self):
        parsed = problem("gemm", act="silu", scale="0.5")
        self.assertEqual(parsed.integer("m"), 3)
        self.assertEqual(parsed.real("scale"), 0.5)
        self.assertTrue(parsed.flag("bias"))
        self.assertEqual(parsed.choice("act"), "silu")

    def test_names_what_is_wrong(self):
        broken = record()
        del broken["op"]
        with self.assertRaisesRegex(BadQuestion, "a problem's record lacks 'op'"):
            read_problem(broken)
        with self.assertRaisesRegex(BadQuestion, "not a problem's record"):
            read_problem({**record(), "filled": {"coefficients": ["many"]}})
        with self.assertRaisesRegex(BadQuestion, "no field 'groups'"):
            problem("gemm").integer("groups")
        with self.assertRaisesRegex(BadQuestion, "'m' is not a number: 'many'"):
            dataclasses.replace(problem("gemm"), fields={"m": "many"}).integer("m")

    def test_reads_the_inputs(self):
        parsed = read_problem({**record(), "filled": {"table": [1, None]}, "normal": {"a": [0, 2]}})
        self.assertEqual(parsed.filled, {"table": [1.0, math.inf]})
        self.assertEqual(parsed.normal, {"a": (0.0, 2.0)})


class Served(unittest.TestCase):
    def serve(self, *lines, answer=lambda question: {"us": [1.0]}):
        answers = mock.Mock(facts=lambda: {"pytorch": "2"}, answer=answer, failure=lambda error: {"failed": "cuda_error", "reason": str(error)})
        written = []
        worker.serve(answers, io.StringIO("".join(line + "\n" for line in lines)), written.append)
        return written

    def test_it_says_what_it_is_and_answers_each_line(self):
        self.assertEqual(self.serve('{"ask": "cold", "number": 1}', '{"ask": "warm", "number": 2}'),
                         [{"facts": {"pytorch": "2"}}, {"us": [1.0], "number": 1}, {"us": [1.0], "number": 2}])

    def test_whatever_is_raised_is_an_answer(self):
        def fails(question):
            raise RuntimeError("CUDA error")

        self.assertEqual(self.serve('{"number": 7}', answer=fails)[1], {"failed": "cuda_error", "reason": "CUDA error", "number": 7})
        self.assertEqual(self.serve("not JSON")[1]["failed"], "cuda_error")

    def test_every_op_of_the_catalogue_has_a_file(self):
        ops = {path.parent.name for path in Path("kernels").glob("*/variants.cpp")} | {"network"}
        self.assertEqual(ops, {path.stem for path in Path("baselines/pytorch/ops").glob("[a-z]*.py")})


PROBLEMS = [
    *(("gemm", {"act": act, "scale": scale, "bias": bias, "residual": residual})
      for act in ("none", "silu", "gelu", "gelu_tanh", "geglu") for scale, bias, residual in ((1, 1, 0), (0.5, 1, 1), (0.5, 0, 0))),
    ("gemm", {"act": "silu", "image_shift": 1, "images": 3, "residual": 1}),
    ("gemm", {"scale": 0.5, "bias": 0, "image_shift": 1}),
    ("gemm", {"act": "gelu", "residual": 1, "blend": 1}),
    ("gemm", {"image_shift": 1, "images": 3, "n": 16, "part_columns": 8}),
    ("gemm", {"n": 16, "part_columns": 8}),
    ("conv2d", {"stride": 2, "act": "silu"}),
    ("conv2d", {"upsample": 1, "residual": 1, "act": "relu"}),
    ("conv2d", {"kernel": 1, "pad": 0, "affine": 1, "image_shift": 1, "gain": 0.5, "bias": 0}),
    ("conv2d", {"side": 7, "residual": 1}),
    ("conv2d", {"side": 7, "side_skip": 4, "stride": 2, "act": "silu", "affine": 1}),
    ("conv_transpose2d", {"act": "silu"}),
    ("conv_transpose2d", {"kernel": 2, "act": "relu", "bias": 0}),
    ("conv3d_temporal", {"residual": 1}),
    ("conv3d_temporal", {"image_shift": 1, "residual": 1}),
    ("conv3d_temporal", {"image_shift": 1, "bias": 0}),
    *(("groupnorm", {"fusion": fusion, "stats": stats}) for fusion in ("none", "silu", "silu+ss") for stats in (0, 1)),
    ("groupnorm", {"fusion": "silu+ss", "packed": 1}),
    *(("groupnorm", {"fusion": fusion, "stats": 1, "skip_channels": 5}) for fusion in ("none", "silu+ss")),
    *(("groupnorm", {"fusion": fusion, "stats": stats, "hw": 48, "down_w": 6}) for fusion, stats in (("none", 0), ("silu", 1), ("silu+ss", 0))),
    *(("groupnorm", {"fusion": fusion, "coefficients": 1, "stats": 1, "hw": 48}) for fusion in ("silu", "silu+ss")),
    *((op, {"layout": layout, "scale": scale, **({"seq_kv": 5} if op == "attention" else {})})
      for op in ("attention", "temporal_attention") for layout in ("separate", "packed_3hd", "packed_h3d", "packed_hd3") for scale in (0, 2)),
    ("attention", {"seq_q": 1, "seq_kv": 1}),
    ("sampler_step", {"noise": "given", "guidance": 3, "clamp": 1, "blend": 0.25}),
    ("sampler_step", {"solver": "edm_heun"}),
    ("sampler_step", {"solver": "edm_heun", "half": "second", "prediction": "x0"}),
    ("sampler_step", {"solver": "dpmpp_2m", "prediction": "v"}),
    *(("layernorm", {"images": 3, "fusion": fusion, "residual": residual, "affine": affine})
      for fusion in ("none", "scale_shift") for residual in (0, 1) for affine in (0, 1)),
    *(("elementwise", {"op": op}) for op in ("silu_fma", "geglu", "relu", "silu", "nchw_to_nhwc", "nhwc_to_nchw")),
    ("elementwise", {"op": "silu_fma", "broadcast": 1}),
    ("elementwise", {"op": "add", "scale": 0.5**0.5}),
    *(("resample", {"op": op, "skip_channels": skip}) for op, skip in (("nearest_up2", 0), ("average_down2", 0), ("concat", 5))),
    *(("timestep_embedding", {"kind": kind, "order": order, "endpoint": int(kind == "sinusoidal"), "hidden": hidden, "final_silu": int(hidden > 0)})
      for kind in ("sinusoidal", "fourier") for order in ("cos_sin", "sin_cos") for hidden in (0, 24)),
    ("q_sample", {}),
    *(("edm_precondition", {"side": side}) for side in ("input", "output")),
    ("network", {}),
    ("network", {"name": "moving-digits", "frames": 5, "width": 12}),
]


def op_of(name):
    return import_module(f"baselines.pytorch.ops.{name}")


@unittest.skipIf(torch is None or not Path(PROGRAM).is_file(), "PyTorch is not installed, or NOISEFLOOR_BINARY names no program")
class Ops(unittest.TestCase):
    def outputs(self, parsed, dtype):
        from baselines.pytorch.case import DTYPES

        op = op_of(parsed.op)
        inputs = op.make_inputs(parsed, DTYPES[dtype], torch.device("cpu"), torch.Generator().manual_seed(1))
        return op, inputs, op.build(parsed)(inputs)

    def judge(self, parsed, dtype, outputs, op, inputs):
        """What is wrong, by the allowance of bench/measure/worker.cpp."""
        from baselines.pytorch.verify import compare

        allowed, roundings = ALLOWED[parsed.op, parsed.text][dtype], op.roundings(parsed, compiled=False)
        found = compare(outputs, op.reference(parsed, inputs))
        for error in found.get("errors", []):
            if error["max"] is None or error["max"] > allowed["max_error"] * (1 + 1.5 * (roundings - 1)):
                return f"error {error['max']}"
            if error["l2"] is None or error["l2"] > allowed["l2_error"] * roundings**0.5:
                return f"relative L2 error {error['l2']}"
        return found.get("wrong", "")

    def test_every_problem_is_within_its_tolerance(self):
        for name, fields in PROBLEMS:
            for dtype in ("bf16", "fp32"):
                with self.subTest(name, dtype=dtype, fields=fields):
                    parsed = problem(name, **fields)
                    op, inputs, outputs = self.outputs(parsed, dtype)
                    self.assertEqual(self.judge(parsed, dtype, outputs, op, inputs), "")

    def test_wrong_results_are_caught(self):
        for name, fields in PROBLEMS:
            for damage in ("element", "nan", "shape"):
                with self.subTest(name, damage=damage, fields=fields):
                    parsed = problem(name, **fields)
                    op, inputs, outputs = self.outputs(parsed, "bf16")
                    last = outputs[-1].clone()
                    flat = last.view(-1) if last.is_contiguous() else last.permute(0, 2, 3, 1).reshape(-1)
                    if damage == "element":
                        flat[-1] += 1 + flat[-1].abs()
                    elif damage == "nan":
                        flat[0] = float("nan")
                    else:
                        last = last[:1]
                    if damage != "shape" and not last.is_contiguous():
                        last = flat.reshape(last.permute(0, 2, 3, 1).shape).permute(0, 3, 1, 2)
                    self.assertNotEqual(self.judge(parsed, "bf16", (*outputs[:-1], last), op, inputs), "")

    def test_wrong_formulas_are_caught(self):
        """The reference is not the timed function: a function built for another problem is found out."""
        wrong = [
            ("gemm", {"act": "silu"}, {"act": "gelu"}),
            ("gemm", {"act": "none", "scale": 0.5}, {"scale": 0.52}),
            ("gemm", {"act": "gelu"}, {"act": "none"}),
            ("conv2d", {"act": "silu"}, {"act": "relu"}),
            ("conv2d", {"upsample": 1}, {"gain": 1.1}),
            ("conv2d", {"side": 7}, {"gain": 1.1}),
            ("conv_transpose2d", {"act": "silu"}, {"act": "none"}),
            ("groupnorm", {"fusion": "silu"}, {"fusion": "none"}),
            ("groupnorm", {"groups": 4}, {"groups": 2}),
            ("groupnorm", {"coefficients": 1}, {"groups": 2}),
            ("attention", {"scale": 0}, {"scale": 0.5}),
            ("temporal_attention", {"scale": 2}, {"scale": 1}),
            ("layernorm", {"eps": 1e-5}, {"eps": 0.3}),
            ("elementwise", {"op": "silu"}, {"op": "relu"}),
            ("elementwise", {"op": "add", "scale": 0.5}, {"scale": 0.52}),
            ("timestep_embedding", {"order": "cos_sin"}, {"order": "sin_cos"}),
            ("timestep_embedding", {"hidden": 24}, {"final_silu": 1}),
            ("edm_precondition", {"side": "output"}, {"sigma_data": 0.6}),
        ]
        for name, fields, others in wrong:
            for dtype in ("bf16", "fp32"):
                with self.subTest(name, dtype=dtype, fields=fields):
                    parsed = problem(name, **fields)
                    op, inputs, _ = self.outputs(parsed, dtype)
                    outputs = op.build(problem(name, **{**fields, **others}))(inputs)
                    self.assertNotEqual(self.judge(parsed, dtype, outputs, op, inputs), "")

    def test_a_packed_tensor_holds_scale_then_shift(self):
        apart, packed = problem("groupnorm", fusion="silu+ss"), problem("groupnorm", fusion="silu+ss", packed=1)
        op, inputs, outputs = self.outputs(apart, "fp32")
        one = {**inputs, "scale_shift": torch.cat((inputs["scale"], inputs["shift"]), dim=1)}
        del one["scale"], one["shift"]
        self.assertEqual(op.make_inputs(packed, torch.float32, torch.device("cpu"), torch.Generator())["scale_shift"].shape,
                         one["scale_shift"].shape)
        self.assertTrue(torch.equal(op.build(packed)(one)[0], outputs[0]))
        self.assertTrue(torch.equal(op.reference(packed, one)[0], op.reference(apart, inputs)[0]))

    def test_a_network_has_every_weight_and_a_wrong_one_is_caught(self):
        parsed = problem("network")
        for dtype in ("bf16", "fp32"):
            op, inputs, _ = self.outputs(parsed, dtype)
            parameters = dict(inputs["network"].named_parameters())
            self.assertTrue(all(tensor.abs().max() > 0 for tensor in parameters.values()))
            for name in ("model.enc.8x8_block0.conv1.weight", "model.dec.4x4_in0.proj.weight", "model.dec.8x8_aux_norm.weight", "model.map_label.weight"):
                with self.subTest(dtype=dtype, weight=name):
                    kept = parameters[name].clone()
                    parameters[name].mul_(1.5)
                    self.assertIn("error", self.judge(parsed, dtype, op.build(parsed)(inputs), op, inputs))
                    parameters[name].copy_(kept)

    def test_every_network_of_the_program_has_its_module(self):
        lines = subprocess.run([PROGRAM, "list", "ops", "--format", "json"], capture_output=True, text=True, check=True).stdout.splitlines()
        fields = next(op["fields"] for op in map(json.loads, lines) if op["op"] == "network")
        self.assertEqual(set(networks.NETWORKS), set(next(field["choices"] for field in fields if field["name"] == "name")))

    def test_networks_of_a_library_take_the_inputs_by_their_names(self):
        try:
            import diffusers  # noqa: F401
        except ImportError:
            self.skipTest("needs diffusers")
        for fields in ({"name": "sd-vae", "height": 8, "width": 16}, {"name": "svd-vae", "batch": 1, "height": 8, "width": 8, "frames": 3}):
            parsed = problem("network", **fields)
            op, inputs, outputs = self.outputs(parsed, "bf16")
            self.assertEqual(self.judge(parsed, "bf16", outputs, op, inputs), "")
            self.assertEqual(outputs[0].shape[-3:], (3, 8 * fields["height"], 8 * fields["width"]))

    def test_every_parameter_is_on_the_device(self):
        """Modules of a library may make theirs on the CPU, whatever the device of the block is."""
        from baselines.pytorch.ops import network

        for name in networks.NETWORKS:
            with self.subTest(name):
                try:
                    made = network.build_on(name, "meta")
                except Unsupported as error:
                    self.skipTest(str(error))
                self.assertEqual({str(one.device) for one in (*made.parameters(), *made.buffers())}, {"meta"})

    def test_a_network_without_levels_is_refused(self):
        parsed = dataclasses.replace(problem("network"), filled={})
        with self.assertRaisesRegex(Unsupported, "no values of sigma"):
            self.outputs(parsed, "bf16")
        with self.assertRaisesRegex(Unsupported, "unknown network 'digit'"):
            self.outputs(dataclasses.replace(parsed, fields={**parsed.fields, "name": "digit"}), "bf16")

    def test_activations_differ_in_fp32(self):
        parsed = problem("gemm", act="gelu", m=64, n=64)
        op, inputs, _ = self.outputs(parsed, "fp32")
        self.assertNotEqual(self.judge(parsed, "fp32", op.build(problem("gemm", act="gelu_tanh", m=64, n=64))(inputs), op, inputs), "")

    def test_wrong_coefficients_are_caught(self):
        for fields in (fields for name, fields in PROBLEMS if name == "sampler_step"):
            parsed = problem("sampler_step", **fields)
            op, inputs, _ = self.outputs(parsed, "bf16")
            read = {0: "prediction", 1: "model", 4: "x", 5: "x0", 2: "guidance", 6: "history", 7: "noise", 8: "blend"}
            for column, what in read.items():
                table = list(parsed.filled["coefficients"])
                table[10 * 12 + column] *= 1.15
                if what in ("guidance", "blend") and not fields.get(what) or what == "noise" and "noise" not in fields:
                    continue
                if what == "history" and "history" not in inputs or what in ("prediction", "model") and fields.get("prediction") == "x0":
                    continue
                with self.subTest(coefficient=what, **fields):
                    changed = dataclasses.replace(parsed, filled={"coefficients": table})
                    self.assertNotEqual(self.judge(parsed, "bf16", op.build(changed)(inputs), op, inputs), "")

    def test_the_sampler_is_its_papers(self):
        """Song et al. 2021, eq. 12, without noise: x0 = (x - sigma e) / alpha, x_next = alpha' x0 + sigma' e."""
        alpha, alpha_next = 0.8, 0.9
        sigma, sigma_next = math.sqrt(1 - alpha**2), math.sqrt(1 - alpha_next**2)
        row = [1 / alpha, -sigma / alpha, 0, None, sigma_next / sigma, alpha_next - sigma_next * alpha / sigma, 0, 0, 0, 0, 0, 0]
        parsed = read_problem({**record("sampler_step", solver="ddim"), "filled": {"coefficients": coefficient_table(row)}})
        op, inputs, outputs = self.outputs(parsed, "fp32")
        x, noise = inputs["x"].double(), inputs["model_output"].double()
        expected = alpha_next * (x - sigma * noise) / alpha + sigma_next * noise
        self.assertTrue(torch.allclose(op.reference(parsed, inputs)[0], expected, rtol=1e-12, atol=1e-12))
        self.assertEqual(self.judge(parsed, "fp32", outputs, op, inputs), "")

    def test_a_table_that_is_missing_is_named(self):
        parsed = read_problem({**record("sampler_step", solver="ddim"), "filled": {}})
        with self.assertRaisesRegex(Unsupported, "no coefficients"):
            self.outputs(parsed, "bf16")

    def test_few_roundings_where_fused(self):
        for name, fields in PROBLEMS:
            with self.subTest(name, fields=fields):
                parsed = problem(name, **fields)
                three = fields.get("act") == "geglu" or name == "q_sample" or name == "conv2d" and "side" in fields or name == "gemm" and "blend" in fields
                most = 6 if name == "layernorm" and "residual" in fields else 3 if three else 2
                self.assertLessEqual(op_of(name).roundings(parsed, compiled=True), most)
                self.assertGreaterEqual(op_of(name).roundings(parsed, compiled=False), op_of(name).roundings(parsed, compiled=True))

    def test_drawn_noise_must_be_normal(self):
        parsed = problem("sampler_step", noise="drawn", elements=100_000)
        op, inputs, outputs = self.outputs(parsed, "fp32")
        self.assertIsNone(op.reference(parsed, inputs))
        self.assertEqual(op.check(parsed, inputs, outputs), "")
        [quiet] = op.build(problem("sampler_step", solver="ddim", elements=100_000))(inputs)
        noise = torch.randn(quiet.shape, generator=torch.Generator().manual_seed(2))
        self.assertEqual(op.check(parsed, inputs, (quiet + 0.3 * noise,)), "")
        self.assertIn("standard deviation", op.check(parsed, inputs, (quiet,)))
        self.assertIn("standard deviation", op.check(parsed, inputs, (quiet + 0.31 * noise,)))
        self.assertIn("mean", op.check(parsed, inputs, (outputs[0] + 0.01,)))
        noise[0, 0] = 30
        self.assertIn("an element of", op.check(parsed, inputs, (quiet + 0.3 * noise,)))
        self.assertIn("2 outputs", op.check(parsed, inputs, (quiet, quiet)))


@unittest.skipIf(torch is None or not Path(PROGRAM).is_file(), "PyTorch is not installed, or NOISEFLOOR_BINARY names no program")
class Cases(unittest.TestCase):
    """The worker's answers on the CPU, untimed."""

    def setUp(self):
        self.answers = worker.Answers(torch.device("cpu"))

    def ready(self, name, variant="torch_eager", dtype="bf16", **fields):
        return self.answers.answer({"ask": "ready", "variant": variant, "dtype": dtype, "problem": record(name, **fields)})

    def test_a_case_is_verified_and_judged_again(self):
        op = import_module("baselines.pytorch.ops.groupnorm")
        with mock.patch.object(op, "reference", wraps=op.reference) as reference:
            answer = self.ready("groupnorm", fusion="silu")
            self.answers.answer({"ask": "judge"})
        self.assertEqual(reference.call_count, 1)  # the inputs are the same
        self.assertEqual(len(answer["errors"]), 1)
        self.assertGreater(answer["roundings"], 1)
        again = self.answers.answer({"ask": "judge"})
        self.assertEqual(again["errors"], answer["errors"])
        self.answers.case.outputs[0].fill_(float("nan"))
        self.assertEqual(self.answers.answer({"ask": "judge"})["errors"], [{"max": None, "l2": None}])

    def test_cudnn_searches_for_the_row_and_not_for_its_reference(self):
        op, cudnn = import_module("baselines.pytorch.ops.conv2d"), torch.backends.cudnn
        for error in (None, RuntimeError("no")):  # of the reference
            seen = []

            def reference(*of, formula=op.reference):
                seen.append((cudnn.benchmark, cudnn.deterministic))
                if error:
                    raise error
                return formula(*of)

            with mock.patch.object(op, "reference", reference):
                try:
                    self.ready("conv2d")
                except RuntimeError as raised:
                    self.assertIs(raised, error)
            self.assertEqual((seen, cudnn.benchmark, cudnn.deterministic), ([(False, True)], True, False))

    def test_drawn_noise_says_how_it_was_judged(self):
        self.assertIn("judged", self.ready("sampler_step", noise="drawn", elements=100_000))

    def test_what_fails_is_an_outcome(self):
        for error, outcome in ((Unsupported("no"), "unsupported_problem"), (NotBuilt("no"), "not_built"), (BadQuestion("no"), "unsupported_problem"),
                               (torch.cuda.OutOfMemoryError("no"), "out_of_memory"), (RuntimeError("no\nmore"), "cuda_error")):
            self.assertEqual(self.answers.failure(error), {"failed": outcome, "reason": "no"})
        with self.assertRaisesRegex(Unsupported, "there is no baselines/pytorch/ops/gem.py"):
            self.answers.answer({"ask": "ready", "variant": "torch_eager", "dtype": "bf16", "problem": {**record(), "op": "gem"}})
        with self.assertRaisesRegex(BadQuestion, "'cold' without a case"):
            self.answers.answer({"ask": "cold", "samples": 1})

    def test_release_lets_go(self):
        self.ready("gemm")
        self.answers.answer({"ask": "release"})
        self.assertIsNone(self.answers.case)


if __name__ == "__main__":
    unittest.main()
