"""Convolutional blocks of diffusers as `patch` has them, which compute layers inside of them without calling these."""

import torch
from torch import nn
from torch.nn.modules.module import _has_any_global_hook

from noisefloor._laid_out import NOMINAL, LaidOut
from noisefloor._replacements import Conv2d, GroupNorm, Replacement, convolve, judged, misfit, need, normalize


def of_diffusers(module):
    """The name of its class where that is diffusers'."""
    return type(module).__name__ if type(module).__module__.startswith("diffusers.") else None


def altered(layer):
    """What a layer has that would be missed where its class's formula stood in for a call of it; "" where nothing."""
    if layer._forward_hooks or layer._forward_pre_hooks:
        return "has hooks, which would not be called"
    return "has its forward replaced, as accelerate's hooks do" if "forward" in layer.__dict__ else ""


def unhooked(module, *layers):
    """Of a module that computes these without calling them."""
    for name in layers:
        why = altered(getattr(module, name))
        need(not why, f"its {name} {why}")


def swapped(*layers):
    """Why a block calls its layers after all; None where they are those that `patch` found."""
    if not torch.compiler.is_compiling() and _has_any_global_hook():
        return "hooks of every module"
    return None if all([isinstance(layer, Replacement) for layer in layers]) else "a layer in it that was put there since"


class Upsample2D(Replacement):
    """Nearest neighbours and a convolution as one op."""

    runs = "conv2d"

    @staticmethod
    def fits(module):
        conv = getattr(module, "conv", None)
        need(module.use_conv and module.interpolate and module.norm is None and isinstance(conv, Conv2d), "it is no interpolation before a Conv2d that is replaced")
        unhooked(module, "conv")
        judged("conv2d", conv.weight.dtype, x=(1, NOMINAL, NOMINAL, conv.in_channels), upsample=True, stride=conv.stride[0], pad=conv.padding[0],
               w=(conv.out_channels, *conv.kernel_size, conv.in_channels))

    @staticmethod
    def lay_out(module, name):
        LaidOut.add(module.conv, name, True)

    def forward(self, hidden_states, output_size=None, *args, **kwargs):
        conv = self.conv
        why = "a given output_size" if output_size is not None else swapped(conv)
        if why := why or misfit(hidden_states, conv.weight.dtype, 4, 4, images=True):
            self.fall_back(why)
            return super().forward(hidden_states, output_size, *args, **kwargs)
        return convolve(conv, conv.weight, hidden_states, upsample=True)


class ResnetBlock2D(Replacement):
    """GroupNorm with SiLU, the timestep's shift in the first convolution, the residual in the second."""

    runs = "groupnorm, conv2d"

    @staticmethod
    def fits(module):
        need(isinstance(module.nonlinearity, nn.SiLU), f"its activation is {type(module.nonlinearity).__name__}")
        need(module.time_embedding_norm in ("default", "scale_shift") or module.time_emb_proj is None,
             f"time_embedding_norm='{module.time_embedding_norm}'")
        for name in ("norm1", "norm2", "conv1", "conv2"):
            need(isinstance(getattr(module, name), (GroupNorm, Conv2d)), f"its {name} is left")
        unhooked(module, "norm1", "norm2", "conv1", "conv2", "nonlinearity")

    def forward(self, input_tensor, temb=None, *args, **kwargs):
        norm1, norm2, conv1, conv2 = self.norm1, self.norm2, self.conv1, self.conv2
        if why := swapped(norm1, norm2, conv1, conv2) or misfit(input_tensor, conv1.weight.dtype, 4, 4, images=True):
            self.fall_back(why)
            return super().forward(input_tensor, temb, *args, **kwargs)
        x = normalize(norm1, norm1.weight, input_tensor, "silu")
        resample = self.upsample if self.upsample is not None else self.downsample
        if resample is not None:
            input_tensor, x = resample(input_tensor), resample(x)
        if self.time_emb_proj is not None:
            temb = self.time_emb_proj(temb if self.skip_time_act else self.nonlinearity(temb)).expand(x.shape[0], -1).contiguous()
        shift = {"image_shift": temb} if self.time_embedding_norm == "default" and self.time_emb_proj is not None else {}
        x = convolve(conv1, conv1.weight, x, **shift)
        if self.time_embedding_norm == "default" and not shift and temb is not None:
            x = x + temb
        if self.time_embedding_norm == "scale_shift":
            x = normalize(norm2, norm2.weight, x, "silu+ss", scale_shift=temb)
        else:
            x = normalize(norm2, norm2.weight, x, "silu")
        if self.conv_shortcut is not None:
            input_tensor = self.conv_shortcut(input_tensor)
        return convolve(conv2, conv2.weight, self.dropout(x), residual=input_tensor, gain=1 / self.output_scale_factor)


BLOCKS = {"ResnetBlock2D": ResnetBlock2D, "Upsample2D": Upsample2D}  # by the names of diffusers' classes
