"""Other people's kernels as rows of PyTorch's worker. A peer is one file, <op>/<name>.py, and its row the baseline peer_<name> (found by its place, also
in bench/sweep/workers.cpp). It has

PACKAGE, VERSIONS  what pip calls it, and how the versions begin that it was written for
CALL               how a user calls it: column `algorithm`
build(problem) -> function(inputs) -> tuple of tensors; imports the package. Inputs are those of baselines/pytorch/ops/<op>.py

and, where it differs from the rest, DTYPES (bfloat16 and float16), and

ONLY = {field: "value value"}: what it can run
can_run(problem) -> str: why not, or ""
prepare(problem, inputs) -> what the function gets in place of them: packed or quantised once, untimed
LOSSY, ALLOWED     in words what it gives up: column `lossy`; and {"max": ..., "l2": ...}, the errors that it is held to instead of the op's
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from baselines.pytorch.errors import NotBuilt, Unsupported


def peers():
    """{(op, variant): module}"""
    files = sorted(Path(__file__).parent.glob("*/[a-z]*.py"))
    return {(file.parent.name, f"peer_{file.stem}"): import_module(f"{__name__}.{file.parent.name}.{file.stem}") for file in files}


def title(peer):
    return f"{peer.PACKAGE} {version(peer.PACKAGE)}"


def lacking(peer):
    """None, or {"wrong": whether it is there in another version, "reason": what to do}."""
    try:
        if version(peer.PACKAGE).startswith(peer.VERSIONS):
            return None
    except PackageNotFoundError:
        return {"wrong": False, "reason": f"Python has no {peer.PACKAGE}: scripts/setup --peers, or pip install {peer.PACKAGE}"}
    return {"wrong": True, "reason": f"Python has {title(peer)}, and its peer was written for {' or '.join(peer.VERSIONS)}: scripts/setup --peers"}


def float32_affine(problem, inputs):
    """For norms that take gamma and beta in fp32, and not without them."""
    x, channels = inputs["x"], problem.integer("channels")
    return {"x": x, **{name: (inputs[name] if name in inputs else x.new_full((channels,), name == "gamma")).float() for name in ("gamma", "beta")}}


class PeerOp:
    """An op of PyTorch's (inputs, reference, roundings) with a peer's function."""

    def __init__(self, op, peer, problem):
        self.op, self.peer = op, peer
        if lack := lacking(peer):
            raise NotBuilt(lack["reason"])
        dtype = str(problem.dtype).replace("torch.", "")
        why_not = [f"not in {dtype}"] if dtype not in getattr(peer, "DTYPES", ("bfloat16", "float16")) else []
        why_not += [f"no {name}={problem.choice(name)}" for name, values in getattr(peer, "ONLY", {}).items() if str(problem.choice(name)) not in values.split()]
        if reason := "; ".join(why_not) or getattr(peer, "can_run", lambda _: "")(problem):
            raise Unsupported(f"{peer.PACKAGE}: {reason}")

    def __getattr__(self, name):
        return getattr(self.op, name)

    def build_variant(self, problem, variant):
        return self.peer.build(problem)

    def prepare(self, problem, inputs):
        return self.peer.prepare(problem, inputs) if hasattr(self.peer, "prepare") else inputs

    def roundings(self, problem, compiled):
        return self.op.roundings(problem, compiled=True)  # one kernel

    def said(self):
        """For the row, beside what was judged."""
        answer = {"note": title(self.peer), "algorithm": self.peer.CALL}
        return {**answer, "lossy": self.peer.LOSSY, "allowed": self.peer.ALLOWED} if hasattr(self.peer, "LOSSY") else answer

    def failure(self, error):
        """What the library raised, as the outcome of a row."""
        words = f"{title(self.peer)}: {(str(error).strip() or type(error).__name__).splitlines()[0]}"
        refused = isinstance(error, (AssertionError, NotImplementedError, TypeError, ValueError))
        return NotBuilt(words) if isinstance(error, ImportError) else Unsupported(words) if refused else error
