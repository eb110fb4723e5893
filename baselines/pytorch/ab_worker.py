"""A side of `noisefloor ab --python`: times the functions of a file in the Python that runs this. bench/measure/worker.h has the questions and answers.

python3 ab_worker.py FILE KEPT old|new REVISION: a folder for the old side's outputs and for revisions; a revision of the repository around the current
folder, which comes before what is installed, or "".

Any environment runs it: it needs the standard library, and PyTorch where outputs are tensors of a GPU. Then times are those of PyTorch's rows, else
of calls.
"""

import gc
import hashlib
import importlib.util
import os
import subprocess
import sys
import tarfile
import time
import traceback

# What is installed comes first.
here = os.path.dirname(os.path.abspath(__file__))
sys.path = [folder for folder in sys.path if folder != here] + [os.path.dirname(os.path.dirname(here))]

from baselines.pytorch import ab_outputs  # noqa: E402
from baselines.pytorch.errors import BadQuestion, Unsupported  # noqa: E402
from baselines.pytorch.worker import Answers, own_output, serve  # noqa: E402

SEED = 0
TOLERANCE = 0.02  # relative L2
SPIN_CYCLES = 100_000


class NotRecorded(Unsupported):
    """A recording that failed leaves PyTorch's allocator unusable: the next case gets another process."""


class Fields(dict):
    """Its values also as attributes: problem.tokens, t.x."""

    __getattr__ = dict.__getitem__


class File:
    """launch(problem, t) is a function of the file's name, each launch_NAME another one, as in a plugin (docs/plugins.md)."""

    def __init__(self, path):
        spec = importlib.util.spec_from_file_location("noisefloor_bench", path)
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # what reads a function's source looks there
        spec.loader.exec_module(module)
        stem = os.path.splitext(os.path.basename(path))[0]
        self.names = vars(module)
        launches = [(stem if name == "launch" else name[len("launch_"):], value) for name, value in self.names.items()
                    if (name == "launch" or name.startswith("launch_")) and callable(value)]
        self.launches = dict(launches)
        if not launches:
            raise ValueError("it has no function launch(problem, t), and no launch_NAME")
        if "" in self.launches or len(self.launches) < len(launches):
            raise ValueError(f"functions launch_NAME need a name each; launch is {stem}")
        problems = self.names.get("cases", lambda: [{}])()
        if not isinstance(problems, list) or not problems or not all(isinstance(one, dict) for one in problems):
            raise ValueError("cases() must give a list of dictionaries, such as [{'tokens': 1024}], with one at least")
        self.problems = {",".join(f"{key}={value}" for key, value in one.items()): Fields(one) for one in problems}
        if len(self.problems) < len(problems):
            raise ValueError("cases() gives two that are one as text, key=value,...")
        self.tolerance = self.names.get("tolerance", TOLERANCE)
        if not isinstance(self.tolerance, (int, float)) or not self.tolerance >= 0:
            raise ValueError(f"tolerance is {self.tolerance!r}, not a relative L2 distance of 0 or more")


class Calls:
    """A function timed as its caller sees it, to the end of its work."""

    def __init__(self, run, synchronize):
        self.run, self.synchronize, self.outputs = run, synchronize, run()

    def poison(self):
        self.outputs = None

    def cold(self, timer, samples):
        return self.warm(timer, samples, 1)

    def warm(self, _, samples, repeats):
        times = []
        for _ in range(samples):
            self.synchronize()
            began = time.perf_counter_ns()
            for _ in range(repeats):
                self.outputs = self.run()
            self.synchronize()
            times.append((time.perf_counter_ns() - began) / 1e3 / repeats)
        return times


def recorded(run):
    """Timed as a row of PyTorch: as CUDA graphs, between events."""
    from baselines.pytorch.case import Case

    class Recorded(Case):
        def __init__(self):
            self.run, self.whole, self.outputs = run, True, run()
            self.inputs = self.prepared = {}  # its own are the file's
            self._begin()
            try:
                self._graph(1).replay()
            except RuntimeError as error:
                reason = str(error).partition("\n")[0]
                raise NotRecorded(f"it cannot be recorded as a CUDA graph; with `graph = False` in the file calls are timed: {reason}") from None

        def poison(self):
            """What it returns may be what it reads."""

    return Recorded()


def kernels_of(run, torch):
    """Names of what a call does on the device."""
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        run()
        torch.cuda.synchronize()
    names = sorted({event.name for event in seen.events() if event.device_type == torch.autograd.DeviceType.CUDA})
    if not names:
        raise RuntimeError("PyTorch's profiler saw no kernel")
    return names


def sm_clock_mhz(torch):
    """By two kernels that spin for known numbers of cycles: what starting one costs is not in their difference."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
    for begin, end, cycles in ((marks[0], marks[1], SPIN_CYCLES), (marks[2], marks[3], 3 * SPIN_CYCLES)):
        begin.record()
        torch.cuda._sleep(cycles)
        end.record()
    torch.cuda.synchronize()
    return 2 * SPIN_CYCLES / (1e3 * (marks[2].elapsed_time(marks[3]) - marks[0].elapsed_time(marks[1])))


class Side(Answers):
    def __init__(self, path, kept, is_old):
        sys.path.append(os.path.dirname(path))
        self.path, self.kept, self.is_old, self.file = path, kept, is_old, File(path)
        self.torch = sys.modules.get("torch")  # where it imports that
        self.on_gpu = self.torch is not None and self.torch.cuda.is_available()
        self.device = self.torch and self.torch.device("cuda" if self.on_gpu else "cpu")
        self.case, self.judged, self.timer, self.computes_there = None, None, None, False
        gc.freeze()
        gc.disable()  # it collects where nothing is timed

    def facts(self):
        return {"device": self.torch.cuda.get_device_name() if self.on_gpu else "host"}

    def answer(self, question):
        ask = question.get("ask")
        if ask == "cases":
            return {"cases": [{"variant": variant, "problem": text, "tolerance": self.file.tolerance}
                              for variant in self.file.launches for text in self.file.problems]}
        if ask == "look" and self.case is not None:
            return {"outputs": self.judged.digest, "reference": self.judged.of_reference,
                    "kernels": kernels_of(self.case.run, self.torch) if self.computes_there else []}
        answer = super().answer(question)
        return {**answer, "mhz": sm_clock_mhz(self.torch)} if ask == "warm" and self.on_gpu else answer

    def ready(self, question):
        self.release()
        variant, text, names = question["variant"], question["problem"], self.file.names
        if variant not in self.file.launches or text not in self.file.problems:
            raise Unsupported(f"the file names no {variant} of '{text}' here")
        for module, name in (("random", "seed"), ("numpy.random", "seed"), ("torch", "manual_seed")):
            if module.partition(".")[0] in sys.modules:
                getattr(importlib.import_module(module), name)(SEED)
        problem = self.file.problems[text]
        tensors = names["setup"](problem) if "setup" in names else {}
        arguments = problem, Fields(tensors) if isinstance(tensors, dict) else tensors

        def run():
            return self.file.launches[variant](*arguments)

        outputs, kept = run(), os.path.join(self.kept, hashlib.sha256(f"{variant} {text}".encode()).hexdigest())
        self.judged = ab_outputs.Judge(outputs, names.get("reference"), arguments, kept, self.is_old)
        self.computes_there = any(getattr(one, "is_cuda", False) for one in ab_outputs.leaves(outputs))
        if self.computes_there and names.get("graph", True):
            from baselines.pytorch.timing import Timer
            self.timer = self.timer or Timer(self.device)
            self.case = recorded(run)
        else:
            self.case = Calls(run, self.torch.cuda.synchronize if self.on_gpu else lambda: None)
        self.case.judge = lambda: self.judged(self.case.outputs)
        return self.case.judge()

    def release(self):
        self.case = self.judged = None
        if "torch._dynamo" in sys.modules:
            self.torch._dynamo.reset()
        gc.collect()
        if self.on_gpu:
            self.torch.cuda.empty_cache()

    def failure(self, error):
        if isinstance(error, (Unsupported, BadQuestion)):
            return {"failed": "unsupported_problem", "reason": str(error), "lost": isinstance(error, NotRecorded)}
        failure = super().failure(error) if self.torch is not None else {"failed": "cuda_error"}
        return {**failure, "reason": words_of(error, self.path)}


def words_of(error, path):
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    place = f" (line {lines[-1]})" if lines else ""
    return f"{os.path.basename(path)}: {type(error).__name__}: {str(error).partition(chr(10))[0]}{place}"


def import_from(revision, kept):
    """Leaves nothing in the repository."""
    def git(*words):
        result = subprocess.run(["git", *words], capture_output=True, text=True)
        if result.returncode != 0:
            raise ValueError(f"git has no revision '{revision}' for this folder: {result.stderr.strip()}")
        return result.stdout.strip()

    commit = git("rev-parse", "--verify", f"{revision}^{{commit}}")
    tree = os.path.join(kept, commit)
    if not os.path.isdir(tree):
        git("-C", git("rev-parse", "--show-toplevel"), "archive", "--format=tar", f"--output={tree}.tar", commit)
        with tarfile.open(f"{tree}.tar") as archive:
            archive.extractall(tree)
    sys.path[:0] = [os.path.join(tree, "src"), tree]


def main(file, kept, side, revision):
    write, path = own_output(), os.path.abspath(file)
    questions = os.fdopen(os.dup(0), encoding="utf-8")  # what the file's functions read is not ours
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdin = open(0, encoding="utf-8", closefd=False)
    try:
        if revision:
            import_from(revision, kept)
        answers = Side(path, kept, side == "old")
    except BaseException as error:  # sys.exit too
        traceback.print_exc()
        write({"failed": "not_built", "reason": words_of(error, path)})
        return 2
    serve(answers, questions, write)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
