"""What `patch` puts before a module's `forward`, and how each call knows that it still may: whether what `fits` found is so.

A Replacement is an entry of the module's own dictionary: its class stays what it was, for those who build layers of `type(module)` or look at that.
Others may keep it as the module's `forward`, and call it after `undo`.
"""

import collections
import types
import warnings

import torch
from torch import nn
from torch._subclasses import FakeTensor
from torch.nn.modules.module import _has_any_global_hook

from noisefloor import _core, _frameworks, _signatures

DTYPES = frozenset((torch.float32, torch.bfloat16, torch.float16))
PLAIN = frozenset((nn.Parameter, torch.Tensor, FakeTensor))


def most(name, field):
    return int(_signatures.signature(name).fields[field]["range"].rpartition(" ")[2])


MOST_IMAGES, MOST_ROWS = min(most("conv2d", "n"), most("groupnorm", "n")), most("gemm", "m")


class Unfit(Exception):
    """Why a module is left as it is."""


def need(condition, why):
    if not condition:
        raise Unfit(why)


def judged(name, dtype, /, **arguments):
    """Raises Unfit with the op's own words where it has no such problem; tensors are given as shapes."""
    made, short = _signatures.signature(name), _core.short_dtype(str(dtype))
    need(short in _frameworks.TORCH, f"its element type is {dtype}")
    shapes = tuple((tuple(arguments[one]), short) if one in arguments else None for one in made.names)
    try:
        _signatures.bound(name).describe(shapes, tuple(arguments.get(one) for one in made.keywords), short)
    except ValueError as refused:
        raise Unfit(str(refused)) from None


def misfit(x, weight, least=1, most=64, images=False, rows=False):
    """Why no op takes x, which PyTorch may; None where one does. Of shape and types alone: torch.compile asks once, and a CUDA graph never."""
    if weight.__class__ not in PLAIN:
        return f"weights that are a {weight.__class__.__name__}"
    dtype = weight.dtype
    if x.dtype is not dtype or dtype not in DTYPES:
        return "an element type that is not the weights', or that no op takes"
    if torch._C._is_any_autocast_enabled() and is_cast(x.device.type, dtype):
        return "torch.autocast to another element type"
    if x.layout is not torch.strided or x.is_nested:
        return "an input that is not dense"
    if not least <= x.dim() <= most:
        return f"an input of {x.dim()} axes"
    if x.numel() == 0:
        return "an empty input"
    if images and x.size(0) > MOST_IMAGES:
        return f"more than {MOST_IMAGES} images"
    return f"more than {MOST_ROWS} rows" if rows and x.numel() > MOST_ROWS * x.size(-1) else None


def is_cast(device, dtype):
    return device in ("cpu", "cuda") and torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) is not dtype


def parameter(module, name):
    """module.name; a module's own way to it takes ten times as long."""
    found = module._parameters.get(name)
    return getattr(module, name) if found is None else found


class Replacement:
    """A subclass says by `fits` (which raises Unfit) what it can stand for, and by the names below what that and its formula rest on."""

    runs = ""  # the ops
    functions = ("forward",)  # of the module's class; the first is replaced
    asks = ()  # of the module's own dictionary; what is read in each call need not stand here
    computes = ()  # layers in the module whose replacements it stands for, too: it does not call them
    restates = ()  # those without one whose forward it has in its formula

    def __init__(self, module, name, said):
        self.module, self.name, self.said, self.active, self.fell_back = module, name, said, True, collections.Counter()
        self.kind, self.before = module.__class__, module.__dict__.get(self.functions[0], ...)
        if isinstance(self.before, Replacement):  # an undone one that somebody put back
            self.before = ...
        self.own = [getattr(self.kind, one) for one in self.functions]
        self.facts = [module.__dict__.get(one, ...) for one in self.asks]
        self.computes = [one for one in self.computes if module._modules.get(one) is not None]
        self.restated = [(one.__class__, one.__class__.forward) for one in (module._modules[name] for name in self.restates)]

    @classmethod
    def check(cls, module):
        for name in cls.functions:
            function = getattr(type(module), name)
            need(getattr(function, "__module__", "").partition(".")[0] == type(module).__module__.partition(".")[0], f"{type(module).__name__}.{name} is replaced")
        need(is_own(module, cls.functions[0]), "its forward is replaced already, as accelerate's hooks do")
        cls.fits(module)
        for name in cls.computes:
            if (layer := getattr(module, name, None)) is not None:
                why = trouble(layer)
                need(why is None, f"its {name} {why}")
        for name in cls.restates:
            why = altered(getattr(module, name))
            need(not why, f"its {name} {why}")

    def put(self, undo):
        """What it does to the module; others may append to `undo`."""
        self.module.__dict__[self.functions[0]] = self

    def undo(self):
        """Others may have kept it: from now on it calls what it replaced."""
        self.active, values, name = False, self.module.__dict__, self.functions[0]
        if values.get(name) is self:
            del values[name]
            if self.before is not ...:
                values[name] = self.before

    def changed(self):
        """What is no longer as `fits` found it; None where all is."""
        module = self.module
        kind, values = module.__class__, module.__dict__
        if not self.active:
            return "was undone"
        if kind is not self.kind:
            return "is of another class since patch"
        if [getattr(kind, one) for one in self.functions] != self.own:
            return "has a function of its class replaced since patch"
        if [values.get(one, ...) for one in self.asks] != self.facts:
            return "was changed since patch: " + ", ".join([one for one, old in zip(self.asks, self.facts) if values.get(one, ...) != old])
        return None

    def inside(self):
        """(None, the replacements of the layers that it computes), or (why it must call them, [])."""
        if hooks_of_every_module():
            return "hooks of every module", []
        modules = self.module._modules
        for name, known in zip(self.restates, self.restated):
            layer = modules[name]
            if (layer.__class__, layer.__class__.forward) != known:
                return f"its {name} is of another class since patch", []
            if why := altered(layer):
                return f"its {name} {why}", []
        found = [standing(modules[name]) for name in self.computes]
        if None in found:
            name = self.computes[found.index(None)]
            return f"its {name} {trouble(modules[name])}", []
        return None, found

    @torch.compiler.assume_constant_result  # called when torch.compile traces it, and not by what that made
    def count(self, why):
        if self.active:
            self.fell_back[why] += 1
            if why not in self.said:
                self.said.add(why)
                name = f"'{self.name}'" if self.name else "the module itself"
                warnings.warn(f"noisefloor.torch.patch: {name} falls back to PyTorch: {why}. The report's fell_back counts such calls", stacklevel=2)

    def original(self, *args, **kwargs):
        function, found = getattr(self.module.__class__, self.functions[0]), self.own[0]
        return (found if function == found else function)(self.module, *args, **kwargs)  # torch.compile calls no function of Attention's class itself

    def fall_back(self, why, *args, **kwargs):
        self.count(why)
        return self.original(*args, **kwargs)

    @property
    def __wrapped__(self):
        """What inspect.signature sees."""
        return types.MethodType(getattr(self.module.__class__, self.functions[0]), self.module)


def hooks_of_every_module():
    return not torch.compiler.is_compiling() and _has_any_global_hook()


def is_own(module, name="forward"):
    """Whether calls reach the function of its class; hooks that were removed leave that bound, or a replacement that was undone."""
    entry = module.__dict__.get(name)
    if isinstance(entry, Replacement):
        return not entry.active
    return entry is None or (getattr(entry, "__self__", None) is module and entry.__func__ is getattr(type(module), name))


def altered(layer):
    """What a layer has that would be missed where its class's formula stood in for a call of it; "" where nothing."""
    if layer._forward_hooks or layer._forward_pre_hooks:
        return "has hooks, which would not be called"
    if "forward" not in layer.__dict__ or isinstance(layer.__dict__["forward"], Replacement) or is_own(layer):
        return ""
    return "has its forward replaced, as accelerate's hooks do"


def standing(layer):
    """The replacement of a layer that a block may compute without a call; None where it must call it."""
    one = None if layer is None else layer.__dict__.get("forward")
    return one if isinstance(one, Replacement) and not layer._forward_hooks and not layer._forward_pre_hooks and one.changed() is None else None


def trouble(layer):
    """Why a block must call it; None where it need not."""
    if layer is None:
        return "is gone"
    one = layer.__dict__.get("forward")
    return altered(layer) or (one.changed() if isinstance(one, Replacement) and one.active else "is left, or was put there since patch")
