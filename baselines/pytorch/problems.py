"""Problems, as problem_record() of bench/measure/suite.h writes them. Names, canonical text and tolerances are the program's; so are the inputs' values
that are not random (`filled`; null is infinity), and mean and standard deviation of those that are (`normal`)."""

import math
from dataclasses import dataclass, field

from baselines.pytorch.errors import BadQuestion


@dataclass(frozen=True)
class Problem:
    op: str
    text: str
    fields: dict
    filled: dict = field(default_factory=dict)  # input -> its values
    normal: dict = field(default_factory=dict)  # random input -> (mean, standard deviation)
    inputs: dict = field(default_factory=dict)  # name -> shape, as a tuple
    outputs: tuple = ()  # their names

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
            raise BadQuestion(f"problem '{self.text}' of {self.op} has no field '{name}'; is this program as new as its PyTorch baselines?")
        return self.fields[name]

    def _number(self, name):
        value = self._field(name)
        try:
            return float(value)
        except (TypeError, ValueError):
            raise BadQuestion(f"problem '{self.text}' of {self.op}: field '{name}' is not a number: {value!r}") from None


def read_problem(record):
    """A problem's record -> Problem."""
    try:
        return Problem(
            record["op"],
            record["problem"],
            dict(record["fields"]),
            {name: [math.inf if value is None else float(value) for value in values] for name, values in record["filled"].items()},
            {name: (float(mean), float(deviation)) for name, (mean, deviation) in record["normal"].items()},
            {tensor["name"]: tuple(map(int, tensor["shape"])) for tensor in record["tensors"] if tensor["role"] != "out"},
            tuple(tensor["name"] for tensor in record["tensors"] if tensor["role"] == "out"),
        )
    except KeyError as error:
        raise BadQuestion(f"a problem's record lacks {error}") from None
    except (AttributeError, TypeError, ValueError) as error:
        raise BadQuestion(f"not a problem's record: {error}") from None
