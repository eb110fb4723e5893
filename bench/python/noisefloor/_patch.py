"""Puts the ops into the modules of a diffusion network: `with noisefloor.torch.patch(unet) as report:`.

A module that is replaced keeps its parameters and names: only its class becomes one derived from its own, with another `forward`. So torch.compile
sees other types before and after, and `undo` gives the classes back. Its own hooks are called; a block that computes layers inside of it without
calling them is left where these have hooks.
"""

import collections
import functools

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from noisefloor import _blocks as blocks
from noisefloor import _replacements as replacements
from noisefloor import _transformers as transformers
from noisefloor._replacements import Unfit, need


@functools.cache
def derived(replacement, base):
    def reduced(module, _):  # pickle would look for the class by its name
        return again, (replacement, base), base.__getstate__(module) if hasattr(base, "__getstate__") else module.__dict__

    return type(f"Noisefloor{base.__name__}", (replacement, base), {"__module__": replacements.__name__, "__reduce_ex__": reduced})


def again(replacement, base):
    """A module as copy and pickle begin it; its state follows."""
    import noisefloor.torch  # noqa: F401 - who unpickles one need not have done so

    made = derived(replacement, base)
    return made.__new__(made)


ITSELF = "(the module itself)"


class Report:
    """What `patch` did: `replaced` has the op by the module's name, `left` the reason. `undo()`, or the end of a `with`, restores the network.

    `fell_back` counts the calls that PyTorch computed in place of a replaced module, by the module's name and the reason. Code of torch.compile is
    counted when it is compiled.
    """

    def __init__(self, dtype):
        self.replaced, self.left = {}, {}
        self._dtype, self._undo, self._fell_back = dtype, [], {}

    @property
    def fell_back(self):
        return {name: dict(reasons) for name, reasons in self._fell_back.items() if reasons}

    def count(self, name, replaced):
        """Has the calls of a module or processor that fall back counted under that name."""
        replaced._noisefloor_fell_back = self._fell_back[name] = collections.Counter()
        self._undo.append(lambda: delattr(replaced, "_noisefloor_fell_back"))

    def replace(self, name, module, replacement):
        for weight in module.parameters(recurse=False):
            plain = type(weight) is nn.Parameter and type(weight.data) is torch.Tensor
            need(plain, f"its weights are a {type(weight if type(weight) is not nn.Parameter else weight.data).__name__}")
            need(weight.device.type in ("cpu", "cuda"), f"its weights are on the device '{weight.device}'")
        replacement.fits(module)
        if isinstance(module, (nn.GroupNorm, nn.LayerNorm)) and module.weight is not None:  # PyTorch mixes element types here
            need(module.weight.dtype == self._dtype, f"its weights are {module.weight.dtype}, most of the network's {self._dtype}")
        need("forward" not in module.__dict__, "its forward is replaced already, as accelerate's hooks do")
        if hasattr(replacement, "convert"):
            self._undo.append(replacement.convert(module))
        if hasattr(replacement, "lay_out"):
            replacement.lay_out(module, name)
        before, module.__class__ = type(module), derived(replacement, type(module))
        self._undo.append(lambda: setattr(module, "__class__", before))
        self.count(name, module)
        self.replaced[name] = f"{before.__name__}: {replacement.runs}"

    def undo(self):
        """Restores the class, processor and layout of every module. A second call does nothing."""
        first = None
        while self._undo:
            try:
                self._undo.pop()()
            except Exception as error:  # a module was taken apart since: the others are given back all the same
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


# Of diffusers: they call conv_norm_out and conv_act in turn, and neither elsewhere.
WITH_LAST_ACTIVATION = {"Decoder", "Encoder", "I2VGenXLUNet", "TemporalDecoder", "UNet2DConditionModel", "UNet2DModel",
                        "UNet3DConditionModel", "UNetMotionModel", "UNetSpatioTemporalConditionModel"}  # fmt: skip


def fuse_last_activation(report, name, module, uses):
    """In the activation's place comes an identity, and the object itself, which other modules may have too, stays as it is."""
    norm, act = getattr(module, "conv_norm_out", None), getattr(module, "conv_act", None)
    if not isinstance(norm, replacements.GroupNorm) or type(act) is not nn.SiLU:
        return
    blocks.unhooked(module, "conv_norm_out", "conv_act")
    need(uses[norm] == 1, "the norm before it is used elsewhere too")
    norm._noisefloor_fusion, module.conv_act = "silu", nn.Identity()

    def back():
        del norm._noisefloor_fusion
        module.conv_act = act

    report._undo.append(back)
    report.replaced[name] = "SiLU: groupnorm"


def patch(module: nn.Module) -> Report:
    """Puts the ops into a network, for inference. Returns a Report of what it replaced, and of what it left and why.

    It replaces layers (convolutions, linear layers, group and layer norms), then diffusers' blocks that fuse them, attention processors, and
    transformer blocks. Parameters keep their names. A change to a parameter, also through `.data`, takes effect at the next call; docs/python.md
    says what a CUDA graph sees. Do not change modules' other settings before `undo`. If no op can take an input, the module's own `forward` computes
    it, and `fell_back` counts that. A call with gradients on is refused.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"patch takes a torch.nn.Module, not a {type(module).__name__}")
    inside = [name for name, one in module.named_modules() if isinstance(one, replacements.Replacement)]
    if inside:
        raise ValueError(f"the module is patched already (at '{inside[0]}'): undo that first")
    sizes = collections.Counter()
    for weight in module.parameters():
        sizes[weight.dtype] += weight.numel() * weight.is_floating_point()
    report = Report(max(sizes, key=sizes.get, default=None))
    modules = list(module.named_modules())
    uses = collections.Counter(one for _, one in module.named_modules(remove_duplicate=False))
    try:
        replace_all(report, modules, replacements.LAYERS, type)
        replace_all(report, modules, blocks.BLOCKS | transformers.TRANSFORMERS, blocks.of_diffusers)
        for name, one in modules:
            if blocks.of_diffusers(one) in WITH_LAST_ACTIVATION:
                act = f"{name}.conv_act".lstrip(".")
                attempt(report, act, lambda: fuse_last_activation(report, act, one, uses))
            if hasattr(one, "processor") and hasattr(one, "to_q"):
                attempt(report, name, lambda: replace_processor(report, name, one))
            elif name not in report.replaced and name not in report.left and (is_parametrized(one) or not list(one.children()) and list(one.parameters(False))):
                report.left[name] = f"no op of patch's replaces {type(one).__name__}"
        replace_all(report, modules, transformers.TRANSFORMER_BLOCKS, blocks.of_diffusers)
    except BaseException:
        report.undo()
        raise
    return report


def replace_all(report, modules, kinds, kind_of):
    for name, one in modules:
        if (kind := kind_of(one)) in kinds:
            attempt(report, name, lambda: report.replace(name, one, kinds[kind]))


def replace_processor(report, name, attn):
    transformers.AttentionProcessor.fits(attn)
    before = attn.processor
    together, parted = transformers.AttentionProcessor.side_by_side(attn)
    report._undo.append(parted)
    attn.processor = transformers.AttentionProcessor(before, together)

    def back():
        attn._modules.pop("processor", None)  # a module was put there since
        attn.processor = before

    report._undo.append(back)
    report.count(name, attn.processor)
    report.replaced[name] = f"{type(before).__name__}: attention"


def attempt(report, name, replace):
    try:
        replace()
    except Unfit as why:
        report.left[name] = str(why)
