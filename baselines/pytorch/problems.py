"""Problems, as `noisefloor list problems --format json` prints them: one JSON object per line,

{"op": "gemm", "problem": "m=1,n=768,k=192", "networks": "adm64-b1:1", "fields": {"m": 1, "act": "none", ...},
 "dtypes": {"bf16": {"flops": 294912, "bytes": 298000, "max_error": 0.0039, "l2_error": 0.0039}, ...},
 "filled": {"coefficients": [1.0, null, ...]}, "normal": {"x": [0, 1], ...}, "tensors": [{"name": "x_next", "role": "out", ...}]}

Every field is there, defaults too. Names, canonical text, costs and tolerances are the program's, so that its rows and PyTorch's agree. So are
the inputs' values that are not random (`filled`; null is infinity), and mean and standard deviation of those that are (`normal`).
"""

import json
import math
import subprocess
from dataclasses import dataclass, field, replace

from baselines.pytorch.errors import BadProblem, CannotRun


@dataclass(frozen=True)
class Cost:
    """FLOPs, compulsory bytes, and the tolerance of the result (kernels/core/op.h)."""

    flops: float
    bytes: float
    max_error: float
    l2_error: float


@dataclass(frozen=True)
class Problem:
    op: str
    text: str
    networks: str
    fields: dict
    costs: dict  # dtype name -> Cost
    filled: dict = field(default_factory=dict)  # input -> its values
    normal: dict = field(default_factory=dict)  # random input -> (mean, standard deviation)
    outputs: tuple = ()  # their names

    def count(self):
        """How often the problem occurs in one forward pass of each of its networks, summed."""
        total = 0
        for item in filter(None, self.networks.split(";")):
            name, colon, count = item.rpartition(":")
            if not colon or not name or not count.isdigit():
                raise BadProblem(f"problem '{self.text}': networks '{item}' is not network:count")
            total += int(count)
        return total

    def integer(self, name):
        return int(self._number(name))

    def real(self, name):
        return float(self._number(name))

    def flag(self, name):
        return self._number(name) != 0

    def choice(self, name):
        return str(self._field(name))

    def _field(self, name):
        if name not in self.fields:
            raise BadProblem(f"problem '{self.text}' of {self.op} has no field '{name}'; is this program as new as its PyTorch baselines?")
        return self.fields[name]

    def _number(self, name):
        value = self._field(name)
        try:
            return float(value)
        except (TypeError, ValueError):
            raise BadProblem(f"problem '{self.text}' of {self.op}: field '{name}' is not a number: {value!r}") from None


def parse_problem(line, where):
    """One line of JSON -> Problem. `where` names it in messages."""
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise BadProblem(f"{where}: not JSON: {error}") from None
    wanted = {"op": str, "problem": str, "networks": str, "fields": dict, "dtypes": dict}
    for key, kind in wanted.items():
        if not isinstance(record, dict) or not isinstance(record.get(key), kind):
            raise BadProblem(f"{where}: '{key}' is missing or no {kind.__name__}")
    costs = {}
    for dtype, numbers in record["dtypes"].items():
        try:
            costs[dtype] = Cost(*(float(numbers[key]) for key in ("flops", "bytes", "max_error", "l2_error")))
        except (KeyError, TypeError, ValueError):
            raise BadProblem(f"{where}: dtypes.{dtype} must have the numbers flops, bytes, max_error and l2_error") from None
    try:
        filled = {name: [math.inf if value is None else float(value) for value in values] for name, values in record.get("filled", {}).items()}
        normal = {name: (float(mean), float(deviation)) for name, (mean, deviation) in record.get("normal", {}).items()}
    except (AttributeError, TypeError, ValueError):
        raise BadProblem(f"{where}: 'filled' must hold lists of numbers, 'normal' a mean and a standard deviation") from None
    return Problem(record["op"], record["problem"], record["networks"], record["fields"], costs, filled, normal, tuple(tensor["name"] for tensor in record["tensors"] if tensor["role"] == "out"))


def parse_problems(lines, source):
    problems = [parse_problem(line, f"{source}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not problems:
        raise CannotRun(f"{source}: no problems")
    return problems


def in_networks(problems, networks):
    """The problems that occur in `networks`, each with only those of its networks; ["all"] leaves them as they are."""
    if networks == ["all"]:
        return problems
    cut = []
    for problem in problems:
        uses = [use for use in problem.networks.split(";") if use.rpartition(":")[0] in networks]
        if uses:
            cut.append(replace(problem, networks=";".join(uses)))
    return cut


def ask_program(program, ops, networks, folder=None):
    """The problems of `ops` in `networks`, asked of the noisefloor program; `folder` holds the problem files."""
    command = [program, "list", "problems", "--format", "json"]
    for flag, value in (("--ops", ",".join(ops)), ("--networks", ",".join(networks)), ("--problems", folder)):
        if value:
            command += [flag, value]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise CannotRun(f"cannot run {program}: {error.strerror}") from None
    if answer.returncode != 0:
        raise CannotRun(f"{' '.join(command)} failed with exit code {answer.returncode}:\n{answer.stderr.strip()}")
    return parse_problems(answer.stdout.splitlines(), " ".join(command))
