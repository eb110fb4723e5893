"""The operators of PyTorch and the functions that call them: those of noisefloor.torch, and those that patched modules call."""

import inspect

import torch
from torch.autograd import forward_ad

from noisefloor import _frameworks, _gradients, _prepared, _products, _signatures
from noisefloor._docstrings import docstring

_library = torch.library.Library("noisefloor", "DEF")
UNKNOWN = None, -1  # kind and place of an argument that is none
FUNCTIONS = {}  # those of noisefloor.torch, by op


def _register(name, schema, real, fake):
    tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)
    _library.define(name + schema, tags=tags)
    op, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.noisefloor, op), overload or "default")
    for key in ("CPU", "CUDA"):
        _library.impl(operator, real, key)
    torch.library.register_fake(operator, fake, lib=_library)
    return operator


def _define(op, of_module):
    """Registers an op, and returns the operator, that with gradients, and the order of its tensors. Its outputs are a list, as their number is the problem's; of an op that
    updates tensors one, which is empty where the problem has none: PyTorch makes functions of no others."""
    made, bound = _signatures.signature(op), _signatures.bound(op)
    writes = {tensor.name: f"({letter}!)" for letter, tensor in zip("abcdefgh", [one for one in made.ordered if one.updated])}
    schema = [f"Tensor{writes.get(tensor.name, '')}{'' if tensor.always else '?'} {tensor.name}{'' if tensor.name in made.first else '=None'}" for tensor in made.ordered]
    order = tuple(tensor.name for tensor in made.ordered)
    # All fields in one text: PyTorch takes longer for each argument, given or not, than this does to read it.
    schema += ["Tensor? prepared=None", "*", "str? fields=None", "str? variant=None", "str? dtype=None"]  # gradients take no tensor behind the star
    # A module's `prepared` is written by each call and read by nobody else, so that no order among calls on one stream matters: it stands here as an
    # input, since torch.compile would copy what is declared as written.
    name = op + ".of_module" * of_module

    def fake(*tensors, fields=None, variant=None, dtype=None, **named):
        by_name = dict(zip((*order, "prepared"), tensors)) | named
        prepared = by_name.get("prepared")
        inputs = [by_name.get(name) for name in made.names]
        devices = {name: one.device for name, one in [*zip(made.names, inputs), ("prepared", prepared)] if one is not None}
        first, device = next(iter(devices.items()))
        for name, other in devices.items():
            if other != device:
                raise ValueError(f"{op}: '{name}' is on {other}, '{first}' on {device}; all tensors must be on one device")
        outputs = _signatures.described(op, inputs, fields, dtype)[1]
        return [torch.empty(shape, dtype=_frameworks.torch_dtype(dtype), device=device) for _, shape, dtype in outputs]

    real = bound.operation([*order, "prepared", "fields", "variant", "dtype"], of_module)
    if not writes:
        operator, trained = _register(name, f"({', '.join(schema)}) -> Tensor[]", real, fake), None
        if op in _gradients.RULES:  # one of its own: autograd would cost each call of the other as long as all else does
            trained = _register(f"{op}.{'of_module_' * of_module}trained", f"({', '.join(schema)}) -> Tensor[]", real, fake)
            _gradients.register(op, trained, order, _library, FUNCTIONS)
        return operator, trained, order

    def one_of(function):
        return lambda first, *others, **named: (function(first, *others, **named) or [first.new_empty(0)])[0]

    return _register(name, f"({', '.join(schema)}) -> Tensor", one_of(real), one_of(fake)), None, order


def _wants_gradients(op, tensors, has_gradients):
    """The operator itself would see no tangents of torch.func.jvp's, which takes them off before."""
    wanted = False
    for name, tensor in tensors.items():
        if isinstance(tensor, torch.Tensor):
            wanted = wanted or torch.is_grad_enabled() and tensor.requires_grad
            if wanted and not has_gradients:
                raise ValueError(f"{op}: '{name}' requires a gradient, and the op has none: call it under torch.no_grad()")
            if forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None:
                raise ValueError(f"{op}: '{name}' has a forward-mode gradient, and the ops have none")
    return wanted


def _refuse_transforms(op, *tensors):
    """Of a call that failed: PyTorch says then neither of which op nor what to do."""
    known = torch._C._functorch
    wrapped = known.is_batchedtensor, known.is_legacy_batchedtensor, known.is_gradtrackingtensor
    if any(isinstance(one, torch.Tensor) and any(so(one) for so in wrapped) for one in tensors):
        raise ValueError(f"{op}: torch.func's transforms (vmap, grad, jacrev) do not reach the ops: use torch.autograd, and a call for each element of vmap's")


def _word(op, name, value):
    text = value if value.__class__ is str else str.__str__(value) if isinstance(value, str) else f"{value}"
    if "," in text:  # which would read as another field
        raise ValueError(f"{op}: '{name}' takes {_signatures.signature(op).fields[name]['range']}, not '{text}'")
    return f",{name}={text}"


def _make_function(op, of_module=False):
    (operator, trained, order), made = _define(op, of_module), _signatures.signature(op)
    required, recording = len(made.first), torch.is_grad_enabled
    kinds = dict.fromkeys(made.keywords, "field") | dict.fromkeys(_signatures.COMMON_OF_TORCH, "other") | dict.fromkeys(order, "tensor")
    kinds |= {name: "flag" if made.fields[name]["type"] == "flag" else "word" for name in made.shared}  # what may say that there is no tensor
    known = {name: (kind, order.index(name) if name in order else len(order)) for name, kind in kinds.items()}

    def function(*tensors, **arguments):
        gradients = (recording() or forward_ad._current_level >= 0) and _wants_gradients(op, dict(zip(order, tensors)) | arguments, trained is not None)
        count = len(tensors)
        if not required <= count <= len(order):
            if lacking := [name for name in order[count:required] if name not in arguments]:
                raise TypeError(f"{op}() missing required positional argument: '{lacking[0]}'")
            if count > len(order):
                raise TypeError(f"{op}() takes {len(order)} positional arguments but {count} were given")
        for value in tensors[required:]:
            if isinstance(value, (str, int)):
                words = {name: value for name, value in zip(order[required:], tensors[required:]) if isinstance(value, (str, int))}
                if twice := [name for name in words if name in arguments]:
                    raise TypeError(f"{op}() got multiple values for argument '{twice[0]}'")
                tensors, count = [None if name in words else value for name, value in zip(order, tensors)], required
                arguments |= words
                break
        passed, text = {}, ""
        for name, value in arguments.items():
            kind, place = known.get(name, UNKNOWN)
            if place < count:
                raise TypeError(f"{op}() got {'multiple values for' if kind else 'an unexpected keyword'} argument '{name}'")
            # What is not given is not passed: each argument costs PyTorch more than this looks at it.
            if value is None and place >= required:
                continue
            if kind == "field" or kind == "word" and isinstance(value, (str, int)):
                # The sum makes of what torch.compile holds as a symbol a number of this call.
                text += f",{name}={value + 0}" if isinstance(value, (int, float)) else _word(op, name, value)
            elif name == "dtype":
                passed[name] = value if value.__class__ is str else str(getattr(value, "__name__", value))  # torch.float16
            elif kind != "flag" or value is not False:
                passed[name] = value
        if text:
            passed["fields"] = text[1:]
        try:
            outputs = (trained if gradients else operator)(*tensors, **passed)
        except RuntimeError:
            _refuse_transforms(op, *tensors, *passed.values())
            raise
        if isinstance(outputs, torch.Tensor):
            return outputs if outputs.numel() else None
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    function.__name__ = function.__qualname__ = op
    function.__module__, function.__signature__ = "noisefloor.torch", inspect.Signature(made.parameters(_signatures.COMMON_OF_TORCH))
    function.__doc__ = docstring(made, _signatures.COMMON_OF_TORCH)
    return function


FUNCTIONS |= {op: _make_function(op) for op in sorted(_signatures.CATALOGUE)}
# What PyTorch's own modules take, these do too: tensors at any address, and weights that may have changed.
OPERATORS = {op: _make_function(op, True) for op in ("attention", "conv2d", "gemm", "groupnorm", "layernorm")}
# [layers, rows of a, columns of one], of weights of one shape. Weights are taken as they lie when it runs, compiled or not.
_several = _register("products_of_modules", "(Tensor a, Tensor[] weights) -> Tensor", _products.products, _products.fake)
_several_trained = _register("products_of_modules.trained", "(Tensor a, Tensor[] weights) -> Tensor", _products.products, _products.fake)
_gradients.register_products(_several_trained, _library, FUNCTIONS)


def _products_of_modules(a, weights):
    recording = torch.is_grad_enabled() or forward_ad._current_level >= 0
    trained = recording and _wants_gradients("gemm", {"a": a} | {f"b[{i}]": weight for i, weight in enumerate(weights)}, True)
    try:
        return (_several_trained if trained else _several)(a, weights)
    except RuntimeError:
        _refuse_transforms("gemm", a, *weights)
        raise


OPERATORS["products"] = _products_of_modules


def prepare(op, /, *tensors, **arguments):
    """noisefloor.prepare for the operators: torch.compile traces through the handle's calls. They take neither `out` nor `stream`."""
    return _prepared.make(op, tensors, arguments, FUNCTIONS.get(op))
