"""Functions made of what ops say of themselves: their fields, and the tensors of small problems of them."""

import dataclasses
import functools
import itertools

from noisefloor import _core

CATALOGUE = {op["name"]: op for op in _core.catalogue()}
PYTHON_TYPE = {"integer": "int", "real": "float", "flag": "bool"}
COMMON = ("out", "variant", "dtype", "stream", "plan")  # arguments of every op
ENDING = """
out: the output, or a tuple of them, to write into; made by the framework of the first tensor where it is None.
variant: one of noisefloor.variants("{op}"); None is the plan's, else the best of the ladder that can run it there.
dtype: {dtypes}; needed where the tensors leave it open.
stream: a CUDA stream or its number; None is the framework's current one. Of tensors on a GPU.
plan: a noisefloor.Plan or its file: the variant of each problem. None is that of noisefloor.use_plan, if any.

Tensors are contiguous in row-major order, at multiples of 16 bytes, on one device, and share no memory with the
output. ValueError: a tensor or a value does not fit, with what would. TypeError: an argument is no tensor.
RuntimeError: the device failed."""


@dataclasses.dataclass(frozen=True)
class Variant:
    """A rung of an op's ladder."""

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
    """The ladder of an op, best last."""
    return [Variant(**variant) for variant in known(op)["variants"]]


@dataclasses.dataclass
class Tensor:
    name: str
    dtype: str
    always: bool
    shape: str


class Signature:
    """Names, order and shapes of an op's tensors, and its fields, of which those that a shape gives are not asked for."""

    def __init__(self, op):
        self.op = op
        self.fields = {field["name"]: field for field in known(op)["fields"]}
        self.samples, moving = _core.samples(op, 1, 240)
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
            for name, shape, dtype, its_role in tensors:
                if its_role == role:
                    seen.setdefault(name, []).append((values, shape, dtype))
                    before.setdefault(name, set()).update(names[: names.index(name)])
        order = []
        while len(order) < len(seen):
            order.append(next(name for name in seen if name not in order and before[name] <= set(order)))
        return [Tensor(name, seen[name][0][2], len(seen[name]) == len(self.samples), self.shape(seen[name])) for name in order]

    def shape(self, seen):
        ranks = {len(shape) for _, shape, _ in seen}
        if len(ranks) > 1:
            return "of a shape that the other arguments decide"
        extents = [self.extent([(values, shape[axis]) for values, shape, _ in seen]) for axis in range(ranks.pop())]
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
        for one, other in itertools.combinations(integers, 2):
            if extents == [a * b for a, b in zip(value[one], value[other])]:
                return f"{one}*{other}"
        return "..."

    def default(self, name):
        """The default of a field as Python has it; None where tensors decide."""
        if name not in self.free:
            return None
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

    def parameters(self, typed):
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
        kinds = {"out": "Array | Sequence[Array | None] | None", "variant": "str | None", "dtype": "str | None", "stream": "Any", "plan": "Any"}
        texts += [f"{name}: {kinds[name]} = None" if typed else f"{name}=None" for name in COMMON]
        return ", ".join(texts)

    def doc(self):
        """The docstring: what the catalogue says."""
        usual = [tensor[0] for tensor in self.samples[0][1] if tensor[3] == "in"]  # of a problem with all defaults
        lines = [f"{self.op}({', '.join(usual)}, ...) -> {', '.join(t.name for t in self.outputs)}", ""]
        lines.append("T is the element type of the call: " + ", ".join(known(self.op)["dtypes"]) + ".")
        for tensor in self.inputs + self.outputs:
            role = "" if tensor in self.inputs else "returned, "
            lines.append(f"{tensor.name}: {role}{'' if tensor.always else 'optional, '}{tensor.dtype} {tensor.shape}")
        lines.append("")
        for name, field in self.fields.items():
            note = f"default {field['default']}" if field["default"] is not None else "from the shapes, or given"
            if name in self.shared:
                note += f"; given as '{name}', in the tensor's place" if field["type"] != "flag" else "; whether the tensor is given"
            lines.append(f"{name}: {field['type']}, {field['range']} ({note})")
        return "\n".join(lines) + "\n" + ENDING.format(op=self.op, dtypes=", ".join(known(self.op)["dtypes"]))


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
    function.__doc__, function.__module__ = made.doc(), "noisefloor.ops"
    return function
