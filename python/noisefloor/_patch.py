"""Puts the ops into the modules of a diffusion network: `with noisefloor.torch.patch(unet) as report:`.

A module that is replaced keeps its class, parameters and names: only a Replacement stands in its own dictionary as its `forward`. Its own hooks are
called; a block that computes layers inside of it without calling them calls them where these have hooks.
"""

import collections

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from noisefloor._blocks import BLOCKS, of_diffusers
from noisefloor._layers import LAYERS
from noisefloor._replacement import Replacement, Unfit, need
from noisefloor._transformers import TRANSFORMER_BLOCKS, TRANSFORMERS

ITSELF = "(the module itself)"


class Report:
    """What `patch` did: `replaced` has the op by the module's name, `left` the reason. `undo()`, or the end of a `with`, restores the network.

    `fell_back` counts the calls that PyTorch computed in place of a replaced module, by the module's name and the reason. Code of torch.compile is
    counted when it is compiled.
    """

    def __init__(self, dtype):
        self.replaced, self.left = {}, {}
        self.dtype, self.said, self._undo, self._counted = dtype, set(), [], {}

    @property
    def fell_back(self):
        return {name: dict(one.fell_back) for name, one in self._counted.items() if one.fell_back}

    def replace(self, name, module, kind):
        for weight in module.parameters(recurse=False):
            plain = type(weight) is nn.Parameter and type(weight.data) is torch.Tensor
            need(plain, f"its weights are a {type(weight if type(weight) is not nn.Parameter else weight.data).__name__}")
            need(weight.device.type in ("cpu", "cuda"), f"its weights are on the device '{weight.device}'")
        kind.check(module)
        if isinstance(module, (nn.GroupNorm, nn.LayerNorm)) and module.weight is not None:  # PyTorch mixes element types here
            need(module.weight.dtype == self.dtype, f"its weights are {module.weight.dtype}, most of the network's {self.dtype}")
        self._counted[name] = replacement = kind(module, name, self.said)
        self._undo.append(replacement.undo)
        replacement.put(self._undo)
        self.replaced[name] = f"{getattr(module, 'processor', module).__class__.__name__}: {replacement.runs}"

    def undo(self):
        """Restores the forward and the layout of every module, whatever else was put on them since. A second call does nothing."""
        first = None
        while self._undo:
            try:
                self._undo.pop()()
            except Exception as error:  # the others are given back all the same
                first = first or error
        if first is not None:
            raise first

    def __enter__(self) -> "Report":
        return self

    def __exit__(self, *_):
        self.undo()

    def __str__(self):
        lines = [f"noisefloor replaced {len(self.replaced)} modules and left {len(self.left)}"]
        lines += [f"  {name or ITSELF}: {what}" for name, what in self.replaced.items()]
        lines += [f"  {name or ITSELF}: left, {what}" for name, what in self.left.items()]
        return "\n".join(lines + [f"  {name or ITSELF}: fell back {n} times, {why}" for name, reasons in self.fell_back.items() for why, n in reasons.items()])

    __repr__ = __str__


def patch(module: nn.Module) -> Report:
    """Puts the ops into a network, for inference and training. Returns a Report of what it replaced, and of what it left and why.

    It replaces the `forward` of layers (convolutions, linear layers, group and layer norms), of attention, and of diffusers' blocks that fuse them.
    Classes, parameters and their names stay. A change to a parameter, also through `.data`, takes effect at the next call; docs/python.md says what a
    CUDA graph sees. If a module was changed since in a way that the ops would miss, or if no op can take an input, the module's own `forward` computes
    the call: `fell_back` counts that, and a warning gives each reason once.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"patch takes a torch.nn.Module, not a {type(module).__name__}")
    inside = [name for name, one in module.named_modules() if any(isinstance(entry, Replacement) and entry.active for entry in vars(one).values())]
    if inside:
        raise ValueError(f"the module is patched already (at '{inside[0]}'): undo that first")
    sizes = collections.Counter()
    for weight in module.parameters():
        sizes[weight.dtype] += weight.numel() * weight.is_floating_point()
    report = Report(max(sizes, key=sizes.get, default=None))
    modules = list(module.named_modules())
    try:
        replace_all(report, modules, LAYERS, type)
        replace_all(report, modules, BLOCKS | TRANSFORMERS, of_diffusers)
        for name, one in modules:
            alone = not list(one.children()) and list(one.parameters(False))
            if name not in report.replaced and name not in report.left and (alone or is_parametrized(one) or hasattr(one, "processor") and hasattr(one, "to_q")):
                report.left[name] = f"no op of patch's replaces {type(one).__name__}"
        replace_all(report, modules, TRANSFORMER_BLOCKS, of_diffusers)
    except BaseException:
        report.undo()
        raise
    return report


def replace_all(report, modules, kinds, kind_of):
    for name, one in modules:
        if (kind := kind_of(one)) in kinds:
            try:
                report.replace(name, one, kinds[kind])
            except Unfit as why:
                report.left[name] = str(why)
