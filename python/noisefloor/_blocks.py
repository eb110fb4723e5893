"""Convolutional blocks of diffusers as `patch` has them, which compute layers inside of them without calling these."""

from torch import nn

from noisefloor._layers import NOMINAL, Conv2d, GroupNorm
from noisefloor._replacement import Replacement, judged, misfit, need, parameter


def of_diffusers(module):
    """The name of its class where that is diffusers'."""
    return type(module).__name__ if type(module).__module__.startswith("diffusers.") else None


def is_replaced(layer, kinds):
    """Whether patch put one of these before its forward."""
    return isinstance(getattr(layer, "forward", None), kinds)


def unlike(weights):
    """Why the layers of a block cannot follow each other; None where they can."""
    first = weights[0]
    for one in weights:
        if one.__class__ is not first.__class__ or one.dtype is not first.dtype:
            return "layers in it whose weights are of several types"
    return None


class Upsample2D(Replacement):
    """Nearest neighbours and a convolution as one op."""

    runs = "conv2d"
    asks = ("use_conv", "interpolate", "norm")
    computes = ("conv",)

    @staticmethod
    def fits(module):
        conv = getattr(module, "conv", None)
        need(module.use_conv and module.interpolate and module.norm is None and is_replaced(conv, Conv2d), "it is no interpolation before a Conv2d that is replaced")
        judged("conv2d", conv.weight.dtype, x=(1, NOMINAL, NOMINAL, conv.in_channels), upsample=True, stride=conv.stride[0], pad=conv.padding[0],
               w=(conv.out_channels, *conv.kernel_size, conv.in_channels))

    def put(self, undo):
        self.module.conv.forward.pack(self.name, True)
        super().put(undo)

    def __call__(self, hidden_states, output_size=None, *args, **kwargs):
        why, layers = self.inside()
        why = self.changed() or why or ("a given output_size" if output_size is not None else None)
        if why := why or misfit(hidden_states, parameter(layers[0].module, "weight"), 4, 4, images=True):
            return self.fall_back(why, hidden_states, output_size, *args, **kwargs)
        return layers[0].convolve(parameter(layers[0].module, "weight"), hidden_states, upsample=True)


class ResnetBlock2D(Replacement):
    """GroupNorm with SiLU, the timestep's shift in the first convolution, the residual in the second."""

    runs = "groupnorm, conv2d"
    asks = ("time_embedding_norm", "time_emb_proj")
    computes = ("norm1", "norm2", "conv1", "conv2")
    restates = ("nonlinearity",)

    @staticmethod
    def fits(module):
        need(type(module.nonlinearity) is nn.SiLU, f"its activation is {type(module.nonlinearity).__name__}")
        need(module.time_embedding_norm in ("default", "scale_shift") or module.time_emb_proj is None,
             f"time_embedding_norm='{module.time_embedding_norm}'")
        for name in ("norm1", "norm2", "conv1", "conv2"):
            layer = getattr(module, name)
            need(is_replaced(layer, (GroupNorm, Conv2d)) or "forward" in layer.__dict__, f"its {name} is left")

    def __call__(self, input_tensor, temb=None, *args, **kwargs):
        module, (why, layers) = self.module, self.inside()
        why, weights = self.changed() or why, [parameter(one.module, "weight") for one in layers]
        if why := why or misfit(input_tensor, weights[0], 4, 4, images=True) or unlike(weights):
            return self.fall_back(why, input_tensor, temb, *args, **kwargs)
        norm1, norm2, conv1, conv2 = layers
        x = norm1.normalize(weights[0], input_tensor, "silu")
        resample = module.upsample if module.upsample is not None else module.downsample
        if resample is not None:
            input_tensor, x = resample(input_tensor), resample(x)
        if module.time_emb_proj is not None:
            temb = module.time_emb_proj(temb if module.skip_time_act else module.nonlinearity(temb)).expand(x.shape[0], -1).contiguous()
        shift = {"image_shift": temb} if module.time_embedding_norm == "default" and module.time_emb_proj is not None else {}
        x = conv1.convolve(weights[2], x, **shift)
        if module.time_embedding_norm == "default" and not shift and temb is not None:
            x = x + temb
        if module.time_embedding_norm == "scale_shift":
            x = norm2.normalize(weights[1], x, "silu+ss", scale_shift=temb)
        else:
            x = norm2.normalize(weights[1], x, "silu")
        if module.conv_shortcut is not None:
            input_tensor = module.conv_shortcut(input_tensor)
        return conv2.convolve(weights[3], module.dropout(x), residual=input_tensor, gain=1 / module.output_scale_factor)


BLOCKS = {"ResnetBlock2D": ResnetBlock2D, "Upsample2D": Upsample2D}  # by the names of diffusers' classes
