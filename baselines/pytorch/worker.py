"""PyTorch's side of a sweep: `noisefloor sweep` starts it and asks over a pipe. bench/measure/worker.h has the questions and answers.

python3 -m baselines.pytorch.worker --device 0
"""

import argparse
import contextlib
import gc
import hashlib
import json
import os
import signal
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from pathlib import Path

from baselines.peers import PeerOp, lacking, peers, title
from baselines.pytorch.errors import BadQuestion, CannotRun, NotBuilt, Unsupported
from baselines.pytorch.problems import read_problem


class Answers:
    """Answers one question after another about one case at a time."""

    def __init__(self, device):
        import torch
        from baselines.pytorch.case import DTYPES, Case
        from baselines.pytorch.timing import Timer

        gc.collect()
        gc.freeze()  # what is imported stays: each case's release need not look through it
        self.torch, self.make_case, self.dtypes = torch, Case, DTYPES
        self.device = device
        self.timer = Timer(device) if device.type == "cuda" else None
        self.case = None

    def facts(self):
        return {**self.versions(), **{name: title(peer) for (_, name), peer in peers().items() if not lacking(peer)}}

    def versions(self):
        torch = self.torch
        try:
            import triton

            version = triton.__version__
        except ImportError:
            version = "none"
        try:
            diffusers = version_of("diffusers")
        except PackageNotFoundError:
            diffusers = "none"
        return {"pytorch": str(torch.__version__), "pytorch_cuda": str(torch.version.cuda), "pytorch_cudnn": str(torch.backends.cudnn.version()),
                "triton": version, "diffusers": diffusers}

    def signature(self, op, variant):
        """Of what a row depends on beside its mode: versions, and the files that run it."""
        folder, peer = Path(__file__).parent, peers().get((op, variant))
        files = sorted([*folder.glob("*.py"), folder / "ops" / f"{op}.py", *(folder.glob("networks/*.py") if op == "network" else [])])
        versions = self.versions()
        if peer is not None and not lacking(peer):
            versions[variant] = title(peer)
            with contextlib.suppress(PackageNotFoundError):  # what some of them are compiled by
                versions["cutlass"] = version_of("nvidia-cutlass-dsl")
            files += [folder.parent / "peers" / "__init__.py", Path(peer.__file__)]
        found = hashlib.sha256(json.dumps(versions, sort_keys=True).encode())
        for file in files:
            if file.exists():
                found.update(file.read_bytes())
        return found.hexdigest()

    def answer(self, question):
        ask = question.get("ask")
        if ask == "ready":
            return self.ready(question)
        if ask == "peers":
            return {"lacking": {name: lack for (_, name), peer in peers().items() if (lack := lacking(peer))}}
        if ask == "release":
            self.release()
            return {}
        if ask == "signature":
            return {"signature": self.signature(question["problem"]["op"], question["variant"])}
        if self.case is None:
            raise BadQuestion(f"'{ask}' without a case that is ready")
        if ask == "cold":
            return {"us": self.case.cold(self.timer, question["samples"])}
        if ask == "warm":
            return {"us": self.case.warm(self.timer, question["samples"], question["repeats"])}
        if ask == "judge":
            return self.case.judge()
        if ask == "poison":
            self.case.poison()
            return {}
        raise BadQuestion(f"unknown question '{ask}'")

    def ready(self, question):
        self.release()
        problem = read_problem(question["problem"], self.dtypes[question["dtype"]])
        try:
            op = import_module(f"baselines.pytorch.ops.{problem.op}")
        except ModuleNotFoundError:
            raise Unsupported(f"there is no baselines/pytorch/ops/{problem.op}.py") from None
        peer = peers().get((problem.op, question["variant"]))
        if peer is None:
            self.case = self.make_case(op, problem, question["variant"], self.device)
            peak = {} if self.case.peak_bytes is None else {"peak_memory_bytes": self.case.peak_bytes}
            return {"note": self.case.note, **peak, **self.case.judge()}
        op = PeerOp(op, peer, problem)
        try:
            self.case = self.make_case(op, problem, question["variant"], self.device)
        except Exception as error:
            raise op.failure(error) from None
        return {**op.said(), **self.case.judge()}

    def release(self):
        self.case = None
        self.torch._dynamo.reset()
        gc.collect()
        if self.device.type == "cuda":
            self.torch.cuda.empty_cache()

    def failure(self, error):
        """The answer where one failed."""
        from baselines.pytorch.case import first_line

        outcome = "cuda_error"
        if isinstance(error, (Unsupported, BadQuestion)):
            outcome = "unsupported_problem"
        elif isinstance(error, NotBuilt):
            outcome = "not_built"
        elif isinstance(error, self.torch.cuda.OutOfMemoryError):
            outcome = "out_of_memory"
        failure = {"failed": outcome, "reason": first_line(error)}
        if outcome == "cuda_error" and self.device.type == "cuda":
            try:
                self.torch.cuda.synchronize()
            except RuntimeError:  # an error that stays: this process can launch nothing more
                return {**failure, "lost": True}
        self.release()
        return failure


def serve(answers, questions, write):
    """Answers line by line, until the questions end."""
    write({"facts": answers.facts()})
    for line in questions:
        question = {}
        try:
            question = json.loads(line)
            answer = answers.answer(question)
        except Exception as error:  # whatever PyTorch or its compiler raises is the row's reason
            answer = answers.failure(error)
        write({**answer, "number": question.get("number")})


def own_output():
    """Answers have standard output to themselves: what libraries print goes to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program ends it
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def write(answer):
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    return write


def open_device(index):
    try:
        import torch
        with contextlib.suppress(Exception):  # a compiler that is broken is the reason of rows that need it
            import torch._inductor.compile_fx
    except ImportError as error:
        raise CannotRun(f"it has no PyTorch ({error})") from None
    if not torch.cuda.is_available():
        raise CannotRun("its PyTorch sees no CUDA device")
    if index >= torch.cuda.device_count():
        raise CannotRun(f"its PyTorch sees {torch.cuda.device_count()} CUDA devices, and not number {index}")
    torch.cuda.set_device(index)
    torch.set_grad_enabled(False)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = False  # fp32 rows are fp32
    torch.backends.cudnn.allow_tf32 = False
    # One rounding at the end of a product, as the op asks: no bf16 or fp16 sums across splits of k.
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    return torch.device("cuda", index)


def main(argv):
    parser = argparse.ArgumentParser(prog="python3 -m baselines.pytorch.worker", description=__doc__.partition("\n")[0])
    parser.add_argument("--device", type=int, default=0, metavar="N", help="CUDA device (default: 0)")
    parser.add_argument("--max-autotune", action="store_true", help="rows of max-autotune will be asked for: starting a pool of compilers pays")
    arguments = parser.parse_args(argv)
    write = own_output()
    if not arguments.max_autotune:
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # few kernels a row: starting a pool of workers takes longer
    try:
        device = open_device(arguments.device)
    except CannotRun as error:
        write({"failed": "not_built", "reason": str(error)})
        return 2
    serve(Answers(device), sys.stdin, write)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
