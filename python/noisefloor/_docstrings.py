"""The docstring of an op's function: what the catalogue says of the op, its tensors and its fields."""

import textwrap

COMMON = {
    "out": "the output to write into, or a tuple of outputs. None makes a new one, of the first given output's framework, else of the first tensor's.",
    "variant": 'one of noisefloor.variants("{op}"). None takes the plan\'s, else the best that can run the problem there.',
    "dtype": "{dtypes}, or their PyTorch or NumPy types. Needed if the tensors do not determine it.",
    "stream": "for tensors on a GPU: a CUDA stream or its number. None is the framework's current stream.",
    "plan": "a noisefloor.Plan or its file, which has the variant of each problem. None takes that of noisefloor.use_plan, if any.",
    "prepared": "memory of a handle of prepare. The handle passes it, with its variant.",
}
ENDING = """Tensors are contiguous in row-major order, begin at multiples of 16 bytes, lie on one device, and share no memory with
an output or with what is updated. ValueError: a tensor or a value does not fit; the message says what would.
TypeError: an argument is not a tensor. RuntimeError: the device failed."""


def line(text):
    return textwrap.fill(text, 118, subsequent_indent="    ", break_on_hyphens=False, break_long_words=False)


def usual_call(made):
    """A call of the usual problem: by position what the signature has in front, by keyword the rest, and what must be given."""
    outputs = [tensor.name for tensor in made.outputs if tensor.name in made.usual]
    order = [tensor.name for tensor in made.ordered]
    front = next((place for place, name in enumerate(order) if name not in made.usual), len(order))
    named = [name for name in order[front:] if name in made.usual] + [name for name in made.keywords if name in made.required]
    return f"{made.op}({', '.join([*order[:front], *(f'{name}={name}' for name in named), '...'])}) -> {', '.join(outputs) or None}"


def tensor_line(tensor):
    forms = [(f"[{', '.join(shape)}]", condition) for shape, condition in tensor.forms]
    tell = len(forms) > 1 or forms[0][1] not in ("1", tensor.name, f"{tensor.name}>0")
    shapes = ", or ".join(f"{shape}{f' with {condition}' * tell}" for shape, condition in forms)
    role = f"{'returned, ' * tensor.returned}{'updated in place, ' * tensor.updated}{'optional, ' * (not tensor.always)}"
    return f"{tensor.name}: {role}{tensor.dtype} {shapes}{': ' * bool(tensor.meaning)}{tensor.meaning}"


def formula_lines(made):
    """Of the names that extents and conditions use beside the fields', and of what they are written in."""
    formulas = [f"{name} = {formula}" for name, formula in made.formulas.items()]
    return [*formulas, "In formulas / rounds down, and a flag or what stands in brackets with = or > is 1 where it holds, else 0."] if formulas else []


def field_line(made, name):
    field = made.fields[name]
    flag = field["type"] == "flag"
    if name in made.shared:
        note = "follows the tensor" if flag else f"given as {name}= in the tensor's place, default {field['default']}"
    elif name in made.required:
        note = "required"
    elif field["default"] is None:
        note = "from the tensors"
    else:
        follows = name not in made.free and field["type"] != "real"  # whose value no tensor says
        note = f"{'from the tensors, else' if follows else 'default'} {made.value(name) if flag else field['default']}"
    kind = "" if field["type"] == "choice" else f"{field['type']}, "
    return f"{name}: {field['meaning']} ({'True or False' if flag else kind + field['range']}; {note})"


def docstring(made, common):
    """Of a Signature, with those arguments of every op."""
    dtypes = ", ".join(made.entry["dtypes"])
    legend = f"T is the element type of the call: {dtypes}."
    parts = [[usual_call(made)], [made.entry["computes"]], [legend, *map(tensor_line, made.inputs + made.outputs), *formula_lines(made)],
             [field_line(made, name) for name in made.fields],
             [f"{name}: {COMMON[name].format(op=made.op, dtypes=dtypes)}" for name in common]]  # fmt: skip
    return "\n\n".join("\n".join(map(line, part)) for part in parts) + "\n\n" + ENDING
