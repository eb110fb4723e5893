"""Problems, as problem_record() of bench/measure/suite.h writes them. Names, canonical text, shapes and tolerances are the program's; so are the inputs' values
that are not random (`filled`; null is infinity), and mean and standard deviation of those that are (`normal`)."""

import math
from dataclasses import dataclass, field
from typing import Any

from baselines.pytorch.errors import BadQuestion


@dataclass(frozen=True)
class Problem:
    op: str
    text: str
    fields: dict
    filled: dict = field(default_factory=dict)  # input -> its values
    normal: dict = field(default_factory=dict)  # random input -> (mean, standard deviation)
    inputs: dict = field(default_factory=dict)  # name -> shape, as a tuple
    types: dict = field(default_factory=dict)  # name of those whose element type is not the row's -> "fp32", ...
    outputs: tuple = ()  # their names
    dtype: Any = None  # the row's, PyTorch's; of what a row is held to fp64

    def integer(self, name):
        return int(self.real(name))

    def real(self, name):
        return float(self.choice(name))

    def flag(self, name):
        return self.real(name) != 0

    def choice(self, name):
        if name not in self.fields:
            raise BadQuestion(f"problem '{self.text}' of {self.op} has no field '{name}'; is this program as new as its PyTorch baselines?")
        return self.fields[name]


def read_problem(record, dtype=None):
    """A problem's record -> Problem."""
    try:
        inputs = [tensor for tensor in record["tensors"] if tensor["role"] != "out"]
        rows = next(iter(record["dtypes"]))  # the record's tensors are of this row
        return Problem(
            record["op"],
            record["problem"],
            dict(record["fields"]),
            {name: [math.inf if value is None else float(value) for value in values] for name, values in record["filled"].items()},
            {name: (float(mean), float(deviation)) for name, (mean, deviation) in record["normal"].items()},
            {tensor["name"]: tuple(map(int, tensor["shape"])) for tensor in inputs},
            {tensor["name"]: tensor["dtype"] for tensor in inputs if tensor["dtype"] != rows},
            tuple(tensor["name"] for tensor in record["tensors"] if tensor["role"] == "out"),
            dtype,
        )
    except KeyError as error:
        raise BadQuestion(f"a problem's record lacks {error}") from None
    except (AttributeError, TypeError, ValueError) as error:
        raise BadQuestion(f"not a problem's record: {error}") from None
