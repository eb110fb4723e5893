"""capture(): how the calls of a PyTorch program are heard. docs/python.md says what it does."""

import collections
import contextlib

import torch
from torch._subclasses import FakeTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry
from torch.utils.weak import WeakTensorKeyDictionary

from noisefloor._captured import Call, Captured
from noisefloor._mapping import NO_OP, RULES, Unmapped

# Recorded where Python calls them: further down they are others on each device.
WHOLE = {func: packet.default for name in ("linear", "scaled_dot_product_attention") if (packet := getattr(torch.ops.aten, name))
         for func in (getattr(torch.nn.functional, name), packet, packet.default)}  # fmt: skip
# No calls: they write, and read nothing but a shape, as NAME_like and new_NAME do; views that do not say so.
NO_CALLS = {"fill", "zero", "normal", "uniform", "random", "bernoulli", "exponential", "log_normal", "resize", "set", "_unsafe_view", "detach"}
MOVES = {"cat", "clone", "copy", "_to_copy", "constant_pad_nd", "embedding", "repeat", "index", "index_select", "gather", "stack", "roll",
         "upsample_nearest2d", "_upsample_nearest_exact2d", "slice_scatter", "select_scatter"}  # fmt: skip


class Tags:
    """(kind, what, its call) of tensors, until they change. `what` is of tensors too, which may be gone: its reference to a storage keeps that from
    being taken for a later one at the same address."""

    def __init__(self):
        self.known, self.changes = WeakTensorKeyDictionary(), collections.Counter()
        self.call = None  # the one that is being recorded

    def __setitem__(self, tensor, tag):
        self.known[tensor] = self.place(tensor), tag

    def of(self, tensor):
        place, tag = self.known.get(tensor, (None, None)) if isinstance(tensor, torch.Tensor) else (None, None)
        return tag if tag and place == self.place(tensor) else (None, None, None)

    def place(self, tensor):
        """Equal for views of the same numbers: the storage and how often it was written to, the offset, shape and strides."""
        storage = StorageWeakRef(tensor.untyped_storage())
        return (storage, self.changes[storage]), tensor.storage_offset(), tuple(tensor.shape), tensor.stride()

    def written(self, tensor):
        with contextlib.suppress(RuntimeError):  # sparse: no storage, and no tag
            self.changes[StorageWeakRef(tensor.untyped_storage())] += 1


def bare(func):
    """aten::add_.Tensor -> add; of other libraries with the library's name."""
    library, _, name = func._schema.name.rpartition("::")
    if library != "aten":
        return f"{library}::{name}"
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def arguments(func, args, kwargs):
    names = func._schema.arguments
    given = dict(zip((one.name for one in names), args)) | kwargs
    return {one.name: given.get(one.name, one.default_value) for one in names}


def tensors_of(values):
    found = []
    for value in values:
        found += tensors_of(value) if isinstance(value, (list, tuple)) else [value] if isinstance(value, torch.Tensor) else []
    return found


class Capture(Captured, contextlib.ExitStack):
    """What `noisefloor.capture()` returns. Inside the `with` it records the calls of this thread, and does not change what they compute."""

    def __init__(self):
        super().__init__()
        self.tags = Tags()
        self.whole = self.used = False

    def __enter__(self):
        if self.used:
            raise RuntimeError("a capture is entered once: make another with noisefloor.capture()")
        self.used = True
        super().__enter__()
        if hasattr(torch.compiler, "set_stance"):  # compiled code is no calls of the dispatcher's
            self.enter_context(torch.compiler.set_stance("force_eager"))
        self.enter_context(Functions(self))
        self.enter_context(Dispatched(self))
        return self

    def __exit__(self, *error):
        super().__exit__(*error)
        self.tags = Tags()
        if timed := [call for call in self.calls if call.events]:
            torch.cuda.synchronize()
        for call in timed:
            call.seconds, call.events = call.events[0].elapsed_time(call.events[1]) / 1e3, None
        return False

    def record(self, func, args, kwargs, run):
        """Runs a call and says what it was."""
        name, values = bare(func), arguments(func, args, kwargs)
        tensors = tensors_of(values.values())
        begin = mark(tensors)
        out = run()
        outs = tensors_of(out if isinstance(out, (list, tuple)) else [out])
        for argument, value in zip(func._schema.arguments, values.values()):
            if argument.alias_info is not None and argument.alias_info.is_write:
                for tensor in tensors_of([value]):
                    self.tags.written(tensor)
        transfer = name in MOVES and len({tensor.device for tensor in tensors + outs}) > 1
        if not tensors or not outs or not outs[0].numel() or name in NO_CALLS or name.endswith("_like") or name.startswith("new_") or transfer:
            return out
        call = Call(name, shape=tuple(outs[0].shape), events=(begin, mark(tensors)) if begin else None)
        self.tags.call = call
        try:
            call.flops = flops_of(func, name, args, kwargs, values, out, outs)
            if name not in RULES:
                raise Unmapped(NO_OP)
            found = RULES[name](values, outs[0], self.tags)
            call.problem, call.parts = found if isinstance(found, tuple) else (found, [])
            for part in call.parts:
                part.problem, part.part = None, True
        except Unmapped as reason:
            call.reason = str(reason)
        except Exception as error:  # a form of the call that is not known here does not end the program
            call.reason = f"noisefloor cannot read this call ({type(error).__name__}: {error})"
        self.calls.append(call)
        return out

def mark(tensors):
    """An event on the current stream of the GPU that the tensors are on; None without one, and where a CUDA graph is captured."""
    device = next((tensor.device for tensor in tensors if tensor.device.type == "cuda" and not isinstance(tensor, FakeTensor)), None)
    if device is None or torch.cuda.is_current_stream_capturing():
        return None
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


def flops_of(func, name, args, kwargs, values, out, outs):
    """Products, convolutions and attention as torch.utils.flop_counter has them; moves none; all else one an element written."""
    if name == "linear":
        return 2 * outs[0].numel() * values["input"].shape[-1]
    if name == "scaled_dot_product_attention":
        query, key, value = values["query"], values["key"], values["value"]
        return 2 * query.numel() // query.shape[-1] * key.shape[-2] * (query.shape[-1] + value.shape[-1])
    if formula := flop_registry.get(func._overloadpacket):
        return int(formula(*args, **kwargs, out_val=out))
    return 0 if name in MOVES else int(sum(tensor.numel() for tensor in outs))


class Listener:
    def __init__(self, capture):
        super().__init__()
        self.capture = capture

    def hear(self, func, types, args=(), kwargs=None):
        return func(*args, **kwargs or {}) if self.capture.whole else self.called(func, args, kwargs or {})


class Functions(Listener, TorchFunctionMode):
    __torch_function__ = Listener.hear

    def called(self, func, args, kwargs):
        op = WHOLE.get(func)
        if op is None:
            return func(*args, **kwargs)
        self.capture.whole = True
        try:
            return self.capture.record(op, args, kwargs, lambda: func(*args, **kwargs))
        finally:
            self.capture.whole = False


class Dispatched(Listener, TorchDispatchMode):
    __torch_dispatch__ = Listener.hear

    def called(self, func, args, kwargs):
        if not isinstance(func, torch._ops.OpOverload):
            return func(*args, **kwargs)
        if bare(func) not in RULES:
            with self:  # inference mode leaves them whole
                out = func.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
        if func.is_view:
            out = func(*args, **kwargs)
            if bare(func) == "slice":
                RULES["slice"](arguments(func, args, kwargs), out, self.capture.tags)
            return out
        return self.capture.record(func, args, kwargs, lambda: func(*args, **kwargs))
