"""Functions made of what ops say of themselves: their fields, and the tensors of small problems of them."""

import dataclasses
import functools
import itertools
import operator

from noisefloor import _core
from noisefloor._docstrings import docstring

CATALOGUE = {op["name"]: op for op in _core.catalogue()}
PYTHON_TYPE = {"integer": "int", "real": "float", "flag": "bool"}
COMMON = ("out", "variant", "dtype", "stream", "plan")  # arguments of every op
COMMON_OF_TORCH = ("variant", "dtype", "prepared")
TYPES_OF_COMMON = {"out": "Array | Sequence[Array | None] | None", "variant": "str | None", "prepared": "Array | None"}  # others: Any


@dataclasses.dataclass(frozen=True)
class Variant:
    """A variant of an op: a rung of its ladder."""

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


@dataclasses.dataclass
class Tensor:
    name: str
    dtype: str
    always: bool
    shape: str
    meaning: str


class Signature:
    """Names, order and shapes of an op's tensors, and its fields, of which those that a shape gives are not asked for."""

    def __init__(self, op):
        self.op, self.entry = op, known(op)
        self.fields = {field["name"]: field for field in self.entry["fields"]}
        self.samples, moving, self.required = _core.samples(op, 1, 240)
        self.inputs, self.outputs = self.tensors("in"), self.tensors("out")
        self.names = names = tuple(tensor.name for tensor in self.inputs)
        # Those without a default: of every problem, and what the usual problem has before them, which may be None.
        usual = [tensor[0] for tensor in self.samples[0][1]]
        leading = list(itertools.takewhile(lambda tensor: not tensor.always and tensor.name in usual, self.inputs))
        always = [tensor for tensor in self.inputs if tensor.always]
        self.first = [tensor.name for tensor in (leading if always else []) + always]
        # Names of both: a tensor that may be absent, and what says so.
        self.shared = [tensor.name for tensor in self.inputs if tensor.name in self.fields and not tensor.always]
        self.keywords = tuple(name for name in self.fields if name not in names)
        self.free = {name for name in self.keywords if self.fields[name]["default"] is not None and name not in moving}

    def tensors(self, role):
        """In the op's order, which is that of every problem: a tensor comes when all that are ever before it are there."""
        seen, before = {}, {}
        for values, tensors in self.samples:
            names = [tensor[0] for tensor in tensors if tensor[3] == role]
            for name, shape, dtype, its_role, meaning in tensors:
                if its_role == role:
                    seen.setdefault(name, []).append((values, shape, dtype, meaning))
                    before.setdefault(name, set()).update(names[: names.index(name)])
        order = []
        while len(order) < len(seen):
            order.append(next(name for name in seen if name not in order and before[name] <= set(order)))
        return [Tensor(name, seen[name][0][2], len(seen[name]) == len(self.samples), self.shape(seen[name]), seen[name][0][3]) for name in order]

    def shape(self, seen):
        ranks = {len(shape) for _, shape, *_ in seen}
        if len(ranks) > 1:
            return "[...]"
        extents = [self.extent([(values, shape[axis]) for values, shape, *_ in seen]) for axis in range(ranks.pop())]
        return f"[{', '.join(extents)}]"

    def extent(self, seen):
        """What an extent is in all samples: a number, a field, a few of them; "..." where it is more than that."""
        integers = [name for name, field in self.fields.items() if field["type"] == "integer"]
        value = {name: [int(values[name]) for values, _ in seen] for name in integers}
        extents = [extent for _, extent in seen]
        if len(set(extents)) == 1:
            return str(extents[0])
        for factor, name in itertools.product((1, 2, 3, 4), integers):
            if extents == [factor * one for one in value[name]]:
                return name if factor == 1 else f"{factor}*{name}"
        for name in integers:
            if extents == [one // 2 for one in value[name]]:
                return f"{name}//2"
        for one, other in itertools.permutations(integers, 2):
            for sign, combine in (("*", operator.mul), (" + ", operator.add), (" - ", operator.sub)):
                if extents == list(map(combine, value[one], value[other])):
                    return f"{one}{sign}{other}"
        return "..."

    def default(self, name):
        """The default of a field as Python has it; None where tensors decide."""
        return self.value(name) if name in self.free else None

    def value(self, name):
        """The default of the field itself."""
        field = self.fields[name]
        convert = {"integer": int, "real": float, "flag": lambda text: text == "1"}.get(field["type"], str)
        return convert(field["default"])

    def annotation(self, name):
        field = self.fields[name]
        kind = PYTHON_TYPE.get(field["type"]) or f"Literal[{', '.join(map(repr, field['choices']))}]"
        return kind if name in self.free else f"{kind} | None"

    def ordered(self):
        """The inputs as a call has them."""
        return sorted(self.inputs, key=lambda tensor: tensor.name not in self.first)

    def parameters(self, typed, common=COMMON):
        """The source text of the parameters; tensors that every problem has come first, and have no default."""
        texts = []
        for tensor in self.ordered():
            other = f" | {self.annotation(tensor.name)}" if tensor.name in self.shared else "" if tensor.always else " | None"
            default = "" if tensor.name in self.first else " = None" if typed else "=None"
            texts.append(tensor.name + (f": Array{other}" if typed else "") + default)
        texts.append("*")
        for name in self.keywords:
            text = f"{name}: {self.annotation(name)} = " if typed else f"{name}="
            texts.append(text + (repr(self.default(name)) if typed else f"_default_{name}"))
        texts += [f"{name}: {TYPES_OF_COMMON.get(name, 'Any')} = None" if typed else f"{name}=None" for name in common]
        return ", ".join(texts)


@functools.cache
def signature(op):
    return Signature(op)


@functools.cache
def bound(op):
    """The op, to be called with its tensors and fields in the order of its signature."""
    made = signature(op)
    return _core.Op(op, list(made.names), list(made.keywords))


def make_function(op, call=None):
    """A Python function with the op's own parameters, so that Python itself names an argument that is wrong or missing."""
    made = signature(op)
    # A field that was left at its default is not given: what the tensors say is asked first.
    fields = ", ".join(f"None if {name} is _default_{name} else {name}" for name in made.keywords)
    if call is None:
        call = bound(op).function([*made.names, *made.keywords, *COMMON], False)
        given = f"{', '.join(made.names)}, {fields}{', ' * bool(made.keywords)}{', '.join(COMMON)}"
    else:
        given = f"({', '.join(made.names)},), ({fields}{',' * bool(made.keywords)}), out, variant, stream, dtype, plan"
    source = f"def {op}({made.parameters(typed=False)}):\n    return _call({given})\n"
    scope = {"_call": call} | {f"_default_{name}": made.default(name) for name in made.keywords}
    exec(compile(source, f"<noisefloor.ops.{op}>", "exec"), scope)
    function = scope[op]
    function.__doc__, function.__module__ = docstring(made, COMMON), "noisefloor.ops"
    return function
