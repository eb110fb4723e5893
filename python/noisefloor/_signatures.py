"""What calls of the ops take: their tensors and fields, as the catalogue has them."""

import dataclasses
import functools
import inspect
import itertools

from noisefloor import _core

CATALOGUE = {op["name"]: op for op in _core.catalogue()}
PYTHON_TYPE = {"integer": "int", "real": "float", "flag": "bool"}
COMMON = ("out", "variant", "dtype", "stream", "plan", "prepared")  # arguments of every op
COMMON_OF_TORCH = ("variant", "dtype", "prepared")
TYPES_OF_COMMON = {"out": "Array | Sequence[Array | None] | None", "variant": "str | None", "prepared": "Array | None"}  # others: Any


@dataclasses.dataclass(frozen=True)
class Variant:
    """A variant of an op."""

    name: str
    kind: str
    arch: str  # what it needs: "host", "any" GPU, "sm_80+", ...
    built: bool  # whether this build has it
    not_written: str | None  # why no build has it


def known(op):
    if op not in CATALOGUE:
        raise ValueError(f"noisefloor has no op '{op}'; it has {', '.join(sorted(CATALOGUE))}")
    return CATALOGUE[op]


def variants(op):
    """The variants of an op, best last."""
    return [Variant(**variant) for variant in known(op)["variants"]]


@dataclasses.dataclass(frozen=True)
class Tensor:
    name: str
    meaning: str
    returned: bool
    updated: bool  # in place
    dtype: str  # "T": the row's
    always: bool  # whether every problem has it
    forms: list = dataclasses.field(default_factory=list)  # (its shape in formulas, when it has that)


class Signature:
    """Names and order of an op's tensors, and its fields, of which those that a shape gives are not asked for."""

    def __init__(self, op):
        self.op, self.entry, found = op, known(op), _core.signature(op)
        self.fields = {field["name"]: field for field in self.entry["fields"]}
        tensors = {}
        for name, *what, shape, condition in found["forms"]:
            tensors.setdefault(name, Tensor(name, *what)).forms.append((shape, condition))
        self.inputs, self.outputs = ([one for one in tensors.values() if one.returned == returned] for returned in (False, True))
        self.usual, self.required, self.formulas = found["usual"], found["open"], found["formulas"]
        self.names = names = tuple(tensor.name for tensor in self.inputs)
        # Those without a default: of every problem, and what the usual problem has before them, which may be None.
        leading = itertools.takewhile(lambda tensor: not tensor.always and tensor.name in self.usual, self.inputs)
        always = [tensor for tensor in self.inputs if tensor.always]
        self.first = [tensor.name for tensor in (list(leading) if always else []) + always]
        self.ordered = sorted(self.inputs, key=lambda tensor: tensor.name not in self.first)  # as a call has them
        # Names of both: a tensor that may be absent, and what says so.
        self.shared = [tensor.name for tensor in self.inputs if tensor.name in self.fields and not tensor.always]
        self.keywords = tuple(name for name in self.fields if name not in names)
        self.free = {name for name in self.keywords if self.fields[name]["default"] is not None and name not in found["moving"]}

    def value(self, name):
        """The default of a field as Python has it."""
        field = self.fields[name]
        convert = {"integer": int, "real": float, "flag": lambda text: text == "1"}.get(field["type"], str)
        return convert(field["default"])

    def annotation(self, name):
        field = self.fields[name]
        kind = PYTHON_TYPE.get(field["type"]) or f"Literal[{', '.join(map(repr, field['choices']))}]"
        return kind if name in self.free else f"{kind} | None"

    def parameters(self, common=COMMON):
        """Tensors that every problem has come first, and have no default; None is that of a field which tensors decide."""
        made = []
        for tensor in self.ordered:
            other = f" | {self.annotation(tensor.name)}" if tensor.name in self.shared else "" if tensor.always else " | None"
            default = inspect.Parameter.empty if tensor.name in self.first else None
            made.append(inspect.Parameter(tensor.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=f"Array{other}"))
        others = [(name, self.value(name) if name in self.free else None, self.annotation(name)) for name in self.keywords]
        others += [(name, None, TYPES_OF_COMMON.get(name, "Any")) for name in common]
        return made + [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind) for name, default, kind in others]

    def text(self, common=COMMON, typed=True):
        """The parameters as source text."""
        texts = []
        for one in self.parameters(common):
            default = "" if one.default is one.empty else f" = {one.default!r}" if typed else f"={one.default!r}"
            texts.append(one.name + (f": {one.annotation}" if typed else "") + default)
        return ", ".join([*texts[: len(self.inputs)], "*", *texts[len(self.inputs) :]])

    def bind(self, tensors, arguments):
        """What a call was given, by name."""
        try:
            return inspect.Signature(self.parameters()).bind(*tensors, **arguments).arguments
        except TypeError as error:
            raise TypeError(f"{self.op}: {error}") from None


def described(op, tensors, fields, dtype):
    """What _core.Op.describe says of PyTorch's tensors, and of the fields in a text."""
    shapes = tuple(None if one is None else (tuple(map(int, one.shape)), _core.short_dtype(str(one.dtype))) for one in tensors)
    return bound(op).describe(shapes, fields or "", dtype)


@functools.cache
def signature(op):
    return Signature(op)


@functools.cache
def bound(op):
    """The op, to be called with its tensors and fields in the order of its signature."""
    made = signature(op)
    return _core.Op(op, list(made.names), list(made.keywords))
