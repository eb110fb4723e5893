"""One case: an op's problem as one variant runs it, made, launched and timed."""

import math
import time
from dataclasses import replace

import torch

from baselines.pytorch.errors import NotBuilt, Unsupported
from baselines.pytorch.timing import Hold

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "int64": torch.int64, "int32": torch.int32, "uint8": torch.uint8}
SEED = 0
WARM_UP = 3  # launches before the first timed one
COMPILE_MODES = {"torch_compile": "default", "torch_compile_max_autotune": "max-autotune-no-cudagraphs"}


def first_line(error):
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def values_of(problem, name, dtype, device, generator):
    """An input as the program says it."""
    shape = problem.inputs[name]
    if name in problem.normal:
        mean, deviation = problem.normal[name]
        return (torch.randn(shape, device=device, generator=generator) * deviation + mean).to(dtype)
    if len(problem.filled.get(name, ())) != math.prod(shape):
        raise Unsupported(f"the problem's record has no values of {name}")
    return torch.tensor(problem.filled[name], device=device).reshape(shape).to(dtype)


def program_inputs(op, problem, device, generator):
    problem = replace(problem, normal={**problem.normal, **{name: fill for name, fill in getattr(op, "NORMAL", {}).items() if name in problem.normal}})
    return {name: values_of(problem, name, DTYPES[problem.types[name]] if name in problem.types else problem.dtype, device, generator)
            for name in problem.inputs}


def make_inputs(op, problem, device, generator):
    if hasattr(op, "make_inputs"):
        return op.make_inputs(problem, device, generator)
    inputs = program_inputs(op, problem, device, generator)
    return op.arrange(problem, inputs) if hasattr(op, "arrange") else inputs


def computed(build, problem, inputs):
    """What the function computes in fp64."""
    wide = {name: value.double() if value.is_floating_point() else value for name, value in inputs.items()}
    return build(replace(problem, dtype=torch.float64))(wide)


def reference(op, problem, inputs):
    return op.reference(problem, inputs) if hasattr(op, "reference") else computed(op.build, problem, inputs)


def judged(op, problem, outputs):
    """What of the outputs is compared."""
    return op.judged(problem, outputs) if hasattr(op, "judged") else outputs


def roundings(op, problem, compiled):
    return op.roundings(problem, compiled) if hasattr(op, "roundings") else 1


def compile_with(run, **options):
    """What PyTorch compiles of it: all, or the parts that it names itself."""
    return run.compile_parts(**options) if hasattr(run, "compile_parts") else torch.compile(run, dynamic=False, **options)


def errors(actual, expected):
    """By kernels/core/op.h's Tolerance, for the program to judge: the largest |difference| / (|expected| + rms(expected)), and the relative L2 norm of
    the difference; None for NaN."""
    expected = expected.double()
    difference = (actual.double() - expected).abs()
    norm = torch.linalg.vector_norm(expected)
    rms = norm / expected.numel() ** 0.5
    found = {"max": (difference / (expected.abs() + rms)).max().item(), "l2": (torch.linalg.vector_norm(difference) / norm).item()}
    return {name: error if math.isfinite(error) else None for name, error in found.items()}


def compare(actual, expected):
    """{"errors": ...} of every output, or {"wrong": ...}."""
    if len(actual) != len(expected):
        return {"wrong": f"{len(actual)} outputs instead of {len(expected)}"}
    for index, (result, wanted) in enumerate(zip(actual, expected)):
        if result.shape != wanted.shape:
            return {"wrong": f"output {index}: shape {tuple(result.shape)} instead of {tuple(wanted.shape)}"}
    return {"errors": [errors(result, wanted) for result, wanted in zip(actual, expected)]}


class Case:
    def __init__(self, op, problem, variant, device):
        self.op, self.problem, self.variant = op, problem, variant
        self.note, self.compiled_s = "", None
        held_before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0  # what the timer holds
        self.inputs = make_inputs(op, problem, device, torch.Generator(device).manual_seed(SEED))
        function = self._function()
        self._prepare()
        self.run = lambda: function(self.prepared)
        self.whole = getattr(op, "WHOLE", False)
        self.outputs = self.run()
        self.peak_bytes = self._peak_bytes(device) - held_before if self.whole and device.type == "cuda" else None
        self._begin()

    def _begin(self):
        """Nothing was timed yet."""
        self._holds = {"cold": Hold(0.0005), "warm": Hold(0.00025)}  # where it begins: a hold that is too short is doubled
        self._graphs, self._warmed_up, self._rolled = {}, False, False
        self._expected = None  # of the inputs as they are

    def _prepare(self):
        self.prepared = self.op.prepare(self.problem, self.inputs) if hasattr(self.op, "prepare") else self.inputs

    def _function(self):
        if self.variant != "torch_eager" and self.variant not in COMPILE_MODES:
            return self.op.build_variant(self.problem, self.variant)
        run = self.op.build(self.problem)
        if self.variant == "torch_eager":
            return run
        compile_mode = COMPILE_MODES[self.variant]
        began = time.monotonic()
        if getattr(self.op, "WHOLE", False):
            self.op.prepare_compiler()
        try:
            compiled = self._compiled(run, compile_mode)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:  # the compiler stack raises its own kinds; a failed device shows at the next call
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            raise NotBuilt(f"torch.compile: {first_line(error)}") from None
        self.note = f"torch.compile(mode={compile_mode}){self.note}"
        self.compiled_s = time.monotonic() - began
        return compiled

    def _peak_bytes(self, device):
        """Of a launch behind the first, whose search of algorithms takes more."""
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        self.outputs = self.run()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device)

    def _compiled(self, run, compile_mode):
        """In one graph. A library's network may break it: then in parts, which the note says."""
        try:
            compiled = compile_with(run, mode=compile_mode, fullgraph=True)
            compiled(self.inputs)
        except torch._dynamo.exc.Unsupported:
            if not getattr(self.op, "WHOLE", False):
                raise
            self.note = ", with graph breaks"
            compiled = compile_with(run, mode=compile_mode, fullgraph=False)
            compiled(self.inputs)
        return compiled

    def judge(self):
        """Of what the last launch left: errors, or what is wrong."""
        if self._expected is None:
            self._expected = self._reference()
        if self._expected is not None:
            times = roundings(self.op, self.problem, compiled=self.variant in COMPILE_MODES)
            return {"roundings": times, **compare(judged(self.op, self.problem, self.outputs), self._expected)}
        wrong = self.op.check(self.problem, self.inputs, self.outputs)
        return {"wrong": wrong} if wrong else {"judged": "its noise is its own: judged by mean, deviation and largest element"}

    def _reference(self):
        """Nobody times the reference: no search of cuDNN's algorithms for it, which takes minutes for a video's decoder in fp32. Deterministic too,
        because PyTorch keeps what cuDNN chose by all but `benchmark`: a row of this dtype would otherwise find the reference's choice, unsearched."""
        cudnn = torch.backends.cudnn
        before = cudnn.benchmark, cudnn.deterministic
        cudnn.benchmark, cudnn.deterministic = False, True
        try:
            return reference(self.op, self.problem, self.inputs)
        finally:
            cudnn.benchmark, cudnn.deterministic = before

    def poison(self):
        """So that launches that do nothing leave what is wrong. An output that is an input itself is spared."""
        inputs = {value.untyped_storage().data_ptr() for value in self.inputs.values() if isinstance(value, torch.Tensor)}
        for outputs in (self.outputs, *(outputs for _, outputs in self._graphs.values())):
            for output in outputs:
                if output.untyped_storage().data_ptr() not in inputs:
                    output.fill_(float("nan"))

    def cold(self, timer, samples):
        """A call of hundreds of kernels, enqueued one by one, would fill the launch queue, which then waits for the device: it is a graph."""
        self._warm_up()
        launch = self._graph(1).replay if self.whole else self._launch
        return timer.samples(launch, samples, self._holds["cold"], prepare=timer.evict)

    def warm(self, timer, samples, repeats):
        """On other inputs than the cold launches, in the same place: a result that was kept from those is wrong."""
        self._warm_up()
        if not self._rolled:
            self._rolled, self._expected = True, None
            for value in self.inputs.values():
                if isinstance(value, torch.Tensor):
                    value.copy_(value.flatten().roll(1).view(value.shape))
            if self.prepared is not self.inputs:
                self._prepare()
                self._launch()  # what it compiles is not recorded
        graph = self._graph(repeats)
        graph.replay()  # behind whatever ran before, as the program's own
        return timer.samples(graph.replay, samples, self._holds["warm"], launches=repeats)

    def _launch(self):
        self.outputs = self.run()

    def _warm_up(self):
        if not self._warmed_up:
            for _ in range(WARM_UP):
                self._launch()
            torch.cuda.synchronize()
            self._warmed_up = True

    def _graph(self, launches):
        """So many calls as one CUDA graph; `outputs` are the last one's."""
        if launches not in self._graphs:
            made = torch.cuda.CUDAGraph()
            with torch.cuda.graph(made):
                for _ in range(launches):
                    outputs = self.run()
            self._graphs[launches] = made, outputs
            made.replay()
            self.poison()
        graph, self.outputs = self._graphs[launches]
        return graph
