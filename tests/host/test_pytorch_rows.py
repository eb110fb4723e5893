"""baselines/pytorch without a GPU: problems, run folders, the stopping rule, and, where PyTorch is there, the ops on the CPU.

Run from the root of the repository: python3 -m unittest tests/host/test_pytorch_rows.py
"""

import contextlib
import io
import json
import os
import tempfile
import unittest
from unittest import mock

from baselines.pytorch import cli, stopping
from baselines.pytorch.errors import CannotRun
from baselines.pytorch.problems import parse_problem, parse_problems
from baselines.pytorch.rows import COLUMNS, RunFolder

try:
    import torch
except ImportError:
    torch = None

TOLERANCE = {"bf16": 2.0**-8 + 1e-5, "fp16": 2.0**-11 + 1e-5, "fp32": 2.0**-24 + 1e-5}


def record(op="gemm", text="m=3,n=4,k=5", networks="adm64-b1:2;sd15-b2:1", **fields):
    base = {
        "gemm": {"m": 3, "n": 4, "k": 5, "act": "none", "scale": 1, "bias": 1, "residual": 0},
        "groupnorm": {"n": 2, "hw": 12, "channels": 8, "groups": 4, "fusion": "none", "eps": 1e-5, "stats": 0},
        "sampler_step": {"batch": 2, "elements": 1000, "solver": "ddpm", "prediction": "noise", "guidance": 0, "clamp": 0, "noise": "none",
                         "blend": 0, "steps": 50, "step": 10, "half": "first"},
    }[op]
    costs = {name: {"flops": 2e6, "bytes": 1e6, "max_error": error, "l2_error": error} for name, error in TOLERANCE.items()}
    return {"op": op, "problem": text, "networks": networks, "fields": {**base, **fields}, "dtypes": costs}


def problem(op, **fields):
    return parse_problem(json.dumps(record(op, **fields)), "test:1")


class Problems(unittest.TestCase):
    def test_reads_a_record(self):
        parsed = parse_problem(json.dumps(record(act="silu", scale="0.5")), "test:1")
        self.assertEqual(parsed.integer("m"), 3)
        self.assertEqual(parsed.real("scale"), 0.5)
        self.assertTrue(parsed.flag("bias"))
        self.assertEqual(parsed.choice("act"), "silu")
        self.assertEqual(parsed.count(), 3)
        self.assertEqual(parsed.costs["bf16"].flops, 2e6)

    def test_names_what_is_wrong(self):
        broken = record()
        del broken["networks"]
        cases = {"not JSON": "{", "'networks' is missing": json.dumps(broken), "'op' is missing": "[]"}
        for message, line in cases.items():
            with self.assertRaisesRegex(CannotRun, f"list:7: .*{message}"):
                parse_problem(line, "list:7")
        with self.assertRaisesRegex(CannotRun, "no problems"):
            parse_problems(["", "\n"], "list")
        with self.assertRaisesRegex(CannotRun, "no field 'groups'"):
            problem("gemm").integer("groups")
        with self.assertRaisesRegex(CannotRun, "'m' is not a number: 'many'"):
            problem("gemm", m="many").integer("m")


class RunFolders(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = folder.name
        with open(os.path.join(self.path, "env.json"), "w", encoding="utf-8") as file:
            json.dump({"commit": "abc"}, file)

    def row(self, **values):
        return {"op": "gemm", "problem": "m=1,n=2,k=3", "dtype": "bf16", "variant": "torch_eager", "status": "ok", **values}

    def content(self, name):
        with open(os.path.join(self.path, name), encoding="utf-8") as file:
            return file.read()

    def test_appends_and_resumes(self):
        with RunFolder(self.path) as folder:
            self.assertEqual(folder.commit, "abc")
            folder.append(self.row(time_cold_us=1.25, reason='a "b", c', max_rel_error=float("nan")), {"cold_us": [1.0], "warm_us": [2.0]})
        lines = self.content("sweep.csv").splitlines()
        self.assertEqual(lines[0].split(","), COLUMNS)
        self.assertIn('"m=1,n=2,k=3"', lines[1])
        self.assertIn('"a ""b"", c"', lines[1])
        self.assertNotIn("nan", lines[1])
        sample = json.loads(self.content("samples.jsonl"))
        self.assertEqual(sample, {"op": "gemm", "dtype": "bf16", "problem": "m=1,n=2,k=3", "variant": "torch_eager", "cold_us": [1.0],
                                  "warm_us": [2.0]})
        with RunFolder(self.path) as folder:
            self.assertEqual(folder.done, {("gemm", "m=1,n=2,k=3", "bf16", "torch_eager")})

    def test_drops_a_row_whose_writer_was_killed(self):
        with RunFolder(self.path) as folder:
            folder.append(self.row())
        whole = self.content("sweep.csv")
        with open(os.path.join(self.path, "sweep.csv"), "a", encoding="utf-8") as file:
            file.write("gemm,torch_comp")
        with RunFolder(self.path) as folder:
            self.assertEqual(len(folder.done), 1)
        self.assertEqual(self.content("sweep.csv"), whole)

    def test_refuses_another_versions_columns(self):
        with open(os.path.join(self.path, "sweep.csv"), "w", encoding="utf-8") as file:
            file.write("op,variant\n")
        with self.assertRaisesRegex(CannotRun, "sweep.csv:1"):
            RunFolder(self.path)

    def test_refuses_an_unwritable_folder(self):
        with self.assertRaisesRegex(CannotRun, "cannot write the run folder"):
            RunFolder(os.path.join(self.path, "env.json", "below"))


class StoppingRule(unittest.TestCase):
    def test_interval_of_the_median(self):
        # n = 100: 50 -+ 9.8, rounded outwards; the binomial's exact ranks are 40 and 61
        low, high = stopping.median_interval(list(range(1, 101)))
        self.assertEqual((low, high), (41, 61))
        self.assertEqual(stopping.median_interval([3, 1, 2]), (1, 3))

    def test_precise(self):
        self.assertFalse(stopping.precise([1.0] * 19))
        self.assertTrue(stopping.precise([1.0] * 20))
        self.assertFalse(stopping.precise([1.0, 1.1] * 10))


class CommandLine(unittest.TestCase):
    def run_main(self, *arguments, stdin=""):
        error = io.StringIO()
        with contextlib.redirect_stderr(error), mock.patch("sys.stdin", io.StringIO(stdin)):
            code = cli.main(["sweep", "--run-dir", "unused", *arguments])
        return code, error.getvalue()

    def test_unknown_names(self):
        code, message = self.run_main("--ops", "gem")
        self.assertEqual(code, 2)
        self.assertIn("unknown op 'gem'; did you mean 'gemm'?", message)

    def test_missing_program(self):
        code, message = self.run_main("--noisefloor", "/nowhere/noisefloor")
        self.assertEqual(code, 2)
        self.assertIn("cannot run /nowhere/noisefloor", message)

    def test_no_problem_left(self):
        code, message = self.run_main("--networks", "sd15-b8", stdin=json.dumps(record()))
        self.assertEqual(code, 2)
        self.assertIn("no problem on standard input", message)


PROBLEMS = [
    *(("gemm", {"act": act, "scale": scale, "bias": bias, "residual": residual})
      for act in ("none", "silu", "gelu", "gelu_tanh", "geglu") for scale, bias, residual in ((1, 1, 0), (0.5, 1, 1), (0.5, 0, 0))),
    *(("groupnorm", {"fusion": fusion, "stats": stats}) for fusion in ("none", "silu", "silu+ss") for stats in (0, 1)),
    ("sampler_step", {"noise": "given", "guidance": 3, "clamp": 1, "blend": 0.25}),
    ("sampler_step", {"solver": "edm_heun"}),
    ("sampler_step", {"solver": "edm_heun", "half": "second", "prediction": "x0"}),
    ("sampler_step", {"solver": "dpmpp_2m", "prediction": "v"}),
]


@unittest.skipIf(torch is None, "PyTorch is not installed")
class Ops(unittest.TestCase):
    def outputs(self, parsed, dtype):
        from baselines.pytorch.ops import OPS
        from baselines.pytorch.sweep import DTYPES

        op = OPS[parsed.op]
        inputs = op.make_inputs(parsed, DTYPES[dtype], torch.device("cpu"), torch.Generator().manual_seed(1))
        return op, inputs, op.build(parsed)(inputs)

    def judge(self, parsed, dtype, outputs, op, inputs):
        from baselines.pytorch.verify import judge

        return judge(outputs, op.reference(parsed, inputs), parsed.costs[dtype], dtype, op.roundings(parsed)).reason

    def test_every_problem_is_within_its_tolerance(self):
        for name, fields in PROBLEMS:
            for dtype in ("bf16", "fp32"):
                with self.subTest(op=name, dtype=dtype, **fields):
                    parsed = problem(name, **fields)
                    op, inputs, outputs = self.outputs(parsed, dtype)
                    self.assertEqual(self.judge(parsed, dtype, outputs, op, inputs), "")

    def test_wrong_results_are_caught(self):
        for name, fields in PROBLEMS:
            for damage in ("element", "nan", "shape"):
                with self.subTest(op=name, damage=damage, **fields):
                    parsed = problem(name, **fields)
                    op, inputs, outputs = self.outputs(parsed, "bf16")
                    last = outputs[-1].clone()
                    flat = last.view(-1) if last.is_contiguous() else last.permute(0, 2, 3, 1).reshape(-1)
                    if damage == "element":
                        flat[-1] = flat[-1] * 1.5 + 1
                    elif damage == "nan":
                        flat[0] = float("nan")
                    else:
                        last = last[:1]
                    if damage != "shape" and not last.is_contiguous():
                        last = flat.reshape(last.permute(0, 2, 3, 1).shape).permute(0, 3, 1, 2)
                    self.assertNotEqual(self.judge(parsed, "bf16", (*outputs[:-1], last), op, inputs), "")

    def test_drawn_noise_must_be_normal(self):
        parsed = problem("sampler_step", noise="drawn", elements=100_000)
        op, inputs, outputs = self.outputs(parsed, "fp32")
        self.assertIsNone(op.reference(parsed, inputs))
        self.assertEqual(op.check(parsed, inputs, outputs), "")
        quiet = op.build(parsed).step(inputs, None)
        self.assertIn("standard deviation", op.check(parsed, inputs, quiet))
        self.assertIn("mean", op.check(parsed, inputs, (outputs[0] + 1,)))


if __name__ == "__main__":
    unittest.main()
