"""The loop over problems, dtypes and variants: verify, time, append a row."""

import statistics
import sys
import time

import torch

from baselines.pytorch import verify
from baselines.pytorch.clocks import Clocks, reasons_text
from baselines.pytorch.errors import Unsupported
from baselines.pytorch.ops import OPS
from baselines.pytorch.rows import RunFolder
from baselines.pytorch.stopping import median_absolute_deviation
from baselines.pytorch.timing import Timer
from baselines.pytorch.variants import COMMON, OF_OP

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
SEED = 0


class DeviceLost(Exception):
    """A CUDA error after which this process's context is unusable."""


def use_best_settings():
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = False  # fp32 rows are fp32
    torch.backends.cudnn.allow_tf32 = False
    # One rounding at the end of a product, as the op asks: no bf16 or fp16 sums across splits of k.
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


def versions():
    result = {"torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    try:
        import triton

        result["triton"] = triton.__version__
    except ImportError:
        result["triton"] = None
    return result


def order(problems, dtypes, variants):
    """Cases as (problem, dtype, variant): eager before compile, and within each what a forward pass meets most often first, so that a budget
    cuts off what matters least."""
    frequent_first = sorted(problems, key=lambda problem: -problem.count())
    return [
        (problem, dtype, variant)
        for variant in variants
        for problem in frequent_first
        for dtype in dtypes
        if problem.op in OPS and dtype in problem.costs and variant in OF_OP[problem.op]
    ]


class Sweep:
    def __init__(self, folder: RunFolder, device=0, compile_mode="default", crosscheck=False):
        use_best_settings()
        torch.cuda.set_device(device)
        self.folder = folder
        self.device = torch.device("cuda", device)
        self.compile_mode = compile_mode
        self.crosscheck = crosscheck
        self.compile_s = None  # of the case in hand
        properties = torch.cuda.get_device_properties(device)
        self.device_name = properties.name
        self.arch = f"sm_{properties.major}{properties.minor}"
        self.timer = Timer(self.device, Clocks(str(properties.uuid)))

    def run(self, cases, budget_s=None):
        """Returns status -> count of the rows written. Rows that are there already are left alone; the budget's cuts go to stderr."""
        todo = [case for case in cases if (case[0].op, case[0].text, case[1], case[2]) not in self.folder.done]
        if len(todo) < len(cases):
            print(f"{len(cases) - len(todo)} rows are in {self.folder.path} already", file=sys.stderr)
        counts, began = {}, time.monotonic()
        for index, (problem, dtype, variant) in enumerate(todo):
            elapsed = time.monotonic() - began
            if budget_s is not None and elapsed > budget_s:
                for cut, cut_dtype, cut_variant in todo[index:]:
                    print(f"skipped: {cut.op}/{cut.text}/{cut_dtype}/{cut_variant}", file=sys.stderr)
                print(f"skipped {len(todo) - index} of {len(todo)} rows: the budget of {budget_s:g} s is spent", file=sys.stderr)
                break
            self.compile_s = None
            row = self.case(problem, dtype, variant)
            counts[row["status"]] = counts.get(row["status"], 0) + 1
            self._report(index + 1, len(todo), row, began)
        return counts

    def case(self, problem, dtype, variant):
        """Writes one row and returns it."""
        cost = problem.costs[dtype]
        row = {
            "op": problem.op,
            "variant": variant,
            "kind": "baseline",
            "dtype": dtype,
            "problem": problem.text,
            "networks": problem.networks,
            "device": self.device_name,
            "arch": self.arch,
            "flops": cost.flops,
            "bytes": cost.bytes,
            "ai": cost.flops / cost.bytes,
            "counter_status": "not_collected",
            "commit": self.folder.commit,
        }
        samples, lost = None, None
        try:
            samples = self._measure(problem, dtype, variant, cost, row)
        except Unsupported as error:
            row.update(status="unsupported_problem", reason=str(error))
        except torch.cuda.OutOfMemoryError as error:
            row.update(status="out_of_memory", reason=_first_line(error))
        except RuntimeError as error:
            row.update(status="cuda_error", reason=_first_line(error))
            lost = self._lost()
        finally:
            torch._dynamo.reset()
            if lost is None:
                torch.cuda.empty_cache()
        self.folder.append(row, samples)
        if lost:
            raise DeviceLost(f"{problem.op}/{problem.text}/{dtype}/{variant}: {lost}")
        return row

    def _measure(self, problem, dtype, variant, cost, row):
        """Fills the row; returns the samples of an `ok` one."""
        op = OPS[problem.op]
        generator = torch.Generator(self.device).manual_seed(SEED)
        with torch.no_grad():
            inputs = op.make_inputs(problem, DTYPES[dtype], self.device, generator)
            function = self._function(op, problem, inputs, variant)
            if isinstance(function, str):
                row.update(status="not_built", reason=function)
                return None
            verdict = self._verify(op, problem, inputs, function(inputs), cost, variant)
            row.update(max_rel_error=verdict.max_rel_error, tolerance=verdict.tolerance)
            if verdict.reason:
                row.update(status="incorrect", reason=verdict.reason)
                return None
            timing = self.timer.time(lambda: function(inputs), whole=getattr(op, "WHOLE", False))
            row.update(
                samples=len(timing.cold_us),
                stop=timing.stop,
                sm_clock_mhz=statistics.median(timing.clocks_mhz) if timing.clocks_mhz else None,
                throttle="" if timing.throttle is None else reasons_text(timing.throttle),
            )
            if timing.throttled():
                row.update(status="throttled", reason=f"{row['throttle']} for {timing.discarded_s:.0f} s")
                return {"cold_us": timing.cold_us, "warm_us": []}
            cold = statistics.median(timing.cold_us)
            row.update(
                status="ok",
                time_cold_us=cold,
                time_cold_mad_us=median_absolute_deviation(timing.cold_us),
                time_warm_us=statistics.median(timing.warm_us),
                gflops=cost.flops / cold * 1e-3,
                gbps=cost.bytes / cold * 1e-3,
            )
            if self.crosscheck:
                self._crosscheck(row, lambda: function(inputs))
        return {"cold_us": timing.cold_us, "warm_us": timing.warm_us}

    def _function(self, op, problem, inputs, variant):
        """What to time, or why there is none."""
        if variant not in COMMON:
            return op.build_variant(problem, variant)
        run = op.build(problem)
        if variant == "torch_eager":
            return run
        began = time.monotonic()
        if getattr(op, "WHOLE", False):
            op.prepare_compiler()
        compiled = torch.compile(run, mode=self.compile_mode, dynamic=False, fullgraph=True)
        try:
            compiled(inputs)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:  # the compiler stack raises its own kinds; a failed device shows at the next call
            torch.cuda.synchronize()
            return f"torch.compile: {_first_line(error)}"
        self.compile_s = time.monotonic() - began
        return compiled

    def _verify(self, op, problem, inputs, outputs, cost, variant):
        expected = op.reference(problem, inputs)
        if expected is None:
            return verify.Verdict(op.check(problem, inputs, outputs), None, None)
        return verify.judge(outputs, expected, cost, op.roundings(problem, compiled=variant == "torch_compile"))

    def _crosscheck(self, row, function):
        from triton.testing import do_bench

        reference_us = 1e3 * do_bench(function, return_mode="median")
        key = {name: row[name] for name in ("op", "variant", "dtype", "problem", "time_cold_us")}
        self.folder.append_crosscheck({**key, "do_bench_us": reference_us, "ratio": row["time_cold_us"] / reference_us})

    def _lost(self):
        try:
            torch.cuda.synchronize()
            return None
        except RuntimeError as error:
            return _first_line(error)

    def _report(self, done, total, row, began):
        left = (time.monotonic() - began) / done * (total - done)
        compiled = f", compiled in {self.compile_s:.1f} s" if row["variant"] == "torch_compile" and self.compile_s else ""
        figure = f"{row['time_cold_us']:.2f} us" if row["status"] == "ok" else f"{row['status']}: {row['reason']}"
        print(f"[{done}/{total}] {row['op']}/{row['problem']}/{row['dtype']}/{row['variant']}: {figure}{compiled} (about {left:.0f} s left)",
              file=sys.stderr, flush=True)


def _first_line(error):
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
