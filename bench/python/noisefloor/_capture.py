"""capture(): the calls of a PyTorch program, and the problems of the catalogue that they are. docs/python.md says what it does."""

import collections
import contextlib
import csv
import dataclasses
import re
import tempfile
from pathlib import Path

import torch
from torch._subclasses import FakeTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry
from torch.utils.weak import WeakTensorKeyDictionary

from noisefloor._mapping import NO_OP, RULES, Problem, Unmapped
from noisefloor._signatures import CATALOGUE

# Recorded where Python calls them: further down they are others on each device.
WHOLE = {func: packet.default for name in ("linear", "scaled_dot_product_attention") if (packet := getattr(torch.ops.aten, name))
         for func in (getattr(torch.nn.functional, name), packet, packet.default)}  # fmt: skip
# No calls: they write, and read nothing but a shape, as NAME_like and new_NAME do; views that do not say so.
NO_CALLS = {"fill", "zero", "normal", "uniform", "random", "bernoulli", "exponential", "log_normal", "resize", "set", "_unsafe_view", "detach"}
MOVES = {"cat", "clone", "copy", "_to_copy", "constant_pad_nd", "embedding", "repeat", "index", "index_select", "gather", "stack", "roll",
         "upsample_nearest2d", "_upsample_nearest_exact2d", "slice_scatter", "select_scatter"}  # fmt: skip


@dataclasses.dataclass
class Call:
    name: str  # PyTorch's
    flops: int = 0
    problem: Problem | None = None
    reason: str = ""  # why it is none
    part: bool = False  # of a later call's problem
    seconds: float = 0.0
    events: tuple | None = None

    @property
    def mapped(self):
        return self.problem is not None or self.part


@dataclasses.dataclass(frozen=True)
class Group:
    """Calls of one problem, or of one name and reason."""

    what: Problem | tuple
    count: int
    flops: int
    seconds: float


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


class Capture(contextlib.ExitStack):
    """What `noisefloor.capture()` gives. It records the calls of this thread while it is entered, and what they compute is as without it."""

    def __init__(self):
        super().__init__()
        self.calls, self.tags = [], Tags()
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
        call = Call(name, events=(begin, mark(tensors)) if begin else None)
        self.tags.call = call
        try:
            call.flops = flops_of(func, name, args, kwargs, values, out, outs)
            if name not in RULES:
                raise Unmapped(NO_OP)
            found = RULES[name](values, outs[0], self.tags)
            call.problem, parts = found if isinstance(found, tuple) else (found, [])
            for part in parts:
                part.problem, part.part = None, True
        except Unmapped as reason:
            call.reason = str(reason)
        except Exception as error:  # a form of the call that is not known here does not end the program
            call.reason = f"noisefloor cannot read this call ({type(error).__name__}: {error})"
        self.calls.append(call)
        return out

    def problems(self):
        """[Group] of what was mapped, in the order met; `what` is the Problem."""
        return grouped((call.problem, call) for call in self.calls if call.problem)

    def unmapped(self):
        """[Group] of what was not, those of most FLOPs first; `what` is (PyTorch's name, the reason)."""
        return sorted(grouped(((call.name, call.reason), call) for call in self.calls if not call.mapped), key=lambda one: (-one.flops, -one.count))

    def coverage(self):
        """The mapped share of calls, of FLOPs and, on a GPU, of seconds: 0 to 1, None where there are none."""
        shares = {}
        for name, amount in (("calls", lambda call: 1), ("flops", lambda call: call.flops), ("seconds", lambda call: call.seconds)):
            total = sum(map(amount, self.calls))
            shares[name] = sum(amount(call) for call in self.calls if call.mapped) / total if total else None
        return shares

    def report(self):
        """The shares, then calls and shares by op, then of what is not mapped."""
        totals = {name: sum(getattr(call, name) for call in self.calls) for name in ("flops", "seconds")}
        columns = [(name, title) for name, title in (("flops", "% FLOPs"), ("seconds", "% time")) if totals[name]]
        what = {"calls": f"{len(self.calls)} calls", "flops": f"{totals['flops']:.4g} FLOPs", "seconds": f"{totals['seconds']:.4g} s on the GPU"}
        shares = [f"{100 * share:.2f} % of {what[name]}" for name, share in self.coverage().items() if share is not None]

        def line(text, groups):
            amounts = [f" {100 * sum(getattr(group, name) for group in groups) / totals[name]:8.2f}" for name, _ in columns]
            return f"{sum(group.count for group in groups):8}{''.join(amounts)}  {text}"

        head = f"\n{'calls':>8}{''.join(f' {title:>8}' for _, title in columns)}  "
        ops = collections.defaultdict(list)
        for group in self.problems():
            ops[group.what.op].append(group)
        lines = ["mapped: " + (", ".join(shares) or "nothing was called"), head + "mapped"]
        lines += [line(f"{op} ({len(groups)} problem{'s' * (len(groups) > 1)})", groups) for op, groups in ops.items()]
        if unmapped := self.unmapped():
            lines += [head + "not mapped", *(line(": ".join(group.what), [group]) for group in unmapped)]
        return "\n".join(lines)

    __str__ = report

    def write(self, folder, network="captured"):
        """Problem files that `noisefloor sweep --problems FOLDER` takes, one an op, in a new or empty folder. The element type that most FLOPs are
        in is the network's, which it is swept in by --dtypes; other problems say theirs. Returns that type."""
        folder, groups = checked(folder, network), self.problems()
        if not groups:
            raise ValueError("nothing that was captured is a problem of the catalogue")
        weight = collections.Counter()
        for group in groups:
            weight[group.what.dtype] += group.flops
        own = weight.most_common(1)[0][0]
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as partial:
            self.write_files(Path(partial), groups, network, own)
            for file in Path(partial).iterdir():
                file.rename(folder / file.name)
        return own

    @staticmethod
    def write_files(folder, groups, network, own):
        for op in dict.fromkeys(group.what.op for group in groups):
            rows = [{"network": network, **group.what.fields, "count": group.count, "dtype": "" if group.what.dtype == own else group.what.dtype}
                    for group in groups if group.what.op == op]  # fmt: skip
            names = [field["name"] for field in CATALOGUE[op]["fields"]] + ["dtype"]
            with open(folder / f"{op}.csv", "x", newline="") as stream:
                writer = csv.DictWriter(stream, ["network", *(name for name in names if any(row.get(name) for row in rows)), "count"], restval="",
                                        extrasaction="ignore", lineterminator="\n")  # fmt: skip
                writer.writeheader()
                writer.writerows(rows)


def checked(folder, network):
    """The folder, which may take problem files of a network of that name."""
    folder = Path(folder)
    if not re.fullmatch(r"[\w.+-]+", network):
        raise ValueError(f"network '{network}': a name is of letters, digits and . _ + -")
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder}: is no folder")
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder}: is not empty; problem files go into a new folder")
    try:  # where it is, or will be made
        tempfile.TemporaryDirectory(dir=next(path for path in (folder, *folder.absolute().parents) if path.exists())).cleanup()
    except OSError as error:
        raise OSError(f"{folder}: cannot be written: {error.strerror}") from None
    return folder


def grouped(pairs):
    groups = {}
    for what, call in pairs:
        groups.setdefault(what, []).append(call)
    return [Group(what, len(calls), sum(call.flops for call in calls), sum(call.seconds for call in calls)) for what, calls in groups.items()]


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
