"""Puts the ops into the modules of a diffusion network: `with noisefloor.torch.patch(unet) as report:`.

A module that is replaced keeps its parameters, names and hooks: only its class becomes one derived from its own, with another `forward`. So
torch.compile sees other types before and after, and `undo` gives the classes back.
"""

import functools

from torch import nn

from noisefloor import _replacements as replacements
from noisefloor._replacements import Unfit, need


@functools.cache
def derived(replacement, base):
    return type(f"Noisefloor{base.__name__}", (replacement, base), {"__module__": replacements.__name__})


class Report:
    """What `patch` did: `replaced` and `left` by the modules' names, with the op, or the reason. `undo()` and the end of a `with` give all back."""

    def __init__(self):
        self.replaced, self.left = {}, {}
        self._undo = []

    def replace(self, name, module, replacement):
        for weight in module.parameters(recurse=False):
            need(weight.device.type in ("cpu", "cuda"), f"its weights are on the device '{weight.device}'")
        replacement.fits(module)
        need("forward" not in module.__dict__, "its forward is replaced already, as accelerate's hooks do")
        back = replacement.convert(module) if hasattr(replacement, "convert") else None
        before, module.__class__ = type(module), derived(replacement, type(module))
        self._undo.append((module, before, back))
        self.replaced[name] = f"{before.__name__}: {replacement.runs}"

    def undo(self):
        """Gives every module its class, processor and layout back. A second time does nothing."""
        while self._undo:
            module, before, back = self._undo.pop()
            if before is not None:
                module.__class__ = before
            if back is not None:
                back()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.undo()

    def __str__(self):
        lines = [f"noisefloor replaced {len(self.replaced)} modules and left {len(self.left)}"]
        lines += [f"  {name or '(the module itself)'}: {what}" for name, what in self.replaced.items()]
        return "\n".join(lines + [f"  {name or '(the module itself)'}: left, {what}" for name, what in self.left.items()])

    __repr__ = __str__


def fuse_last_activation(report, name, module):
    """conv_norm_out and conv_act of a U-Net, which calls them in turn."""
    norm, act = getattr(module, "conv_norm_out", None), getattr(module, "conv_act", None)
    if isinstance(norm, replacements.GroupNorm) and type(act) is nn.SiLU:
        norm._noisefloor_fusion = "silu"
        report._undo.append((norm, None, lambda: norm.__dict__.pop("_noisefloor_fusion")))
        report.replace(f"{name}.conv_act".lstrip("."), act, replacements.FusedSiLU)


def patch(module):
    """Puts the ops into a network, for inference, and returns a Report of what it replaced and what it left, and why.

    Layers first (convolutions, linear layers, group and layer norms), then blocks of diffusers that fuse them, then attention processors. Parameters and
    their names stay. Patch after moving or loading weights, and do not change them before `undo`. A call with gradients on is refused.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"patch takes a torch.nn.Module, not a {type(module).__name__}")
    inside = [name for name, one in module.named_modules() if "Noisefloor" in type(one).__name__]
    if inside:
        raise ValueError(f"the module is patched already (at '{inside[0]}'): undo that first")
    report = Report()
    modules = list(module.named_modules())
    try:
        for kinds in (replacements.LAYERS, replacements.BLOCKS):
            for name, one in modules:
                key = type(one) if kinds is replacements.LAYERS else type(one).__name__ if type(one).__module__.startswith("diffusers.") else None
                if key in kinds:
                    attempt(report, name, lambda: report.replace(name, one, kinds[key]))
        for name, one in modules:
            fuse_last_activation(report, name, one)
            if hasattr(one, "processor") and hasattr(one, "to_q"):
                attempt(report, name, lambda: replace_processor(report, name, one))
            elif name not in report.replaced and name not in report.left and not list(one.children()) and list(one.parameters(False)):
                report.left[name] = f"no op of patch's replaces {type(one).__name__}"
    except BaseException:
        report.undo()
        raise
    return report


def replace_processor(report, name, attn):
    replacements.AttentionProcessor.fits(attn)
    before = attn.processor
    attn.processor = replacements.AttentionProcessor(before)
    report._undo.append((attn, None, lambda: setattr(attn, "processor", before)))
    report.replaced[name] = f"{type(before).__name__}: attention"


def attempt(report, name, replace):
    try:
        replace()
    except Unfit as why:
        report.left[name] = str(why)
