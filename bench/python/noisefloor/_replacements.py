"""What `patch` puts into a network: a class for each kind of module, whose `forward` calls the ops. Layers stand here,
blocks in _blocks.py and _transformers.py.

`fits` raises Unfit where the ops cannot do what the module does; `convert` changes what the module holds and returns what puts it back; `lay_out`
adds to that; `runs` names the ops. Activations are channels-last from end to end: `permute(0, 2, 3, 1)` of such a tensor is the dense [n, h, w, c]
that the ops take, and no copy. Weights are read at each call. A call that no op takes is PyTorch's: `misfit` says why, and `fall_back` counts it.
"""

import torch
from torch import nn

from noisefloor import _frameworks, _signatures
from noisefloor._laid_out import NOMINAL, LaidOut

OPERATORS = {}  # by the op's name, of noisefloor.torch, which fills it: what asks a module for it in each call takes longer
DTYPES = frozenset((torch.float32, torch.bfloat16, torch.float16))


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
    made, short = _signatures.signature(name), _frameworks.short_name(dtype)
    need(short in _frameworks.TORCH, f"its element type is {dtype}")
    shapes = tuple((tuple(arguments[one]), short) if one in arguments else None for one in made.names)
    try:
        _signatures.bound(name).describe(shapes, tuple(arguments.get(one) for one in made.keywords), short)
    except ValueError as refused:
        raise Unfit(str(refused)) from None


def channels_last(x):
    """[n, c, ...] as dense [n, ..., c]: a view where x is channels-last in memory."""
    return x.movedim(1, -1).contiguous()


def channels_first(y):
    return y.movedim(-1, 1)


def misfit(x, dtype, least=1, most=64, images=False, rows=False):
    """Why no op takes x, which PyTorch may; None where one does. Of shape and types alone: torch.compile asks once, and a CUDA graph never."""
    if x.dtype is not dtype or dtype not in DTYPES:
        return "an element type that is not the weights', or that no op takes"
    if x.layout is not torch.strided or x.is_nested:
        return "an input that is not dense"
    if not least <= x.dim() <= most:
        return f"an input of {x.dim()} axes"
    if x.numel() == 0:
        return "an empty input"
    if images and x.size(0) > MOST_IMAGES:
        return f"more than {MOST_IMAGES} images"
    return f"more than {MOST_ROWS} rows" if rows and x.numel() > MOST_ROWS * x.size(-1) else None


class Replacement:
    """Before the class of the module itself, whose `forward` is `super().forward`."""

    @torch.compiler.assume_constant_result  # called when torch.compile traces it, and not by what that made
    def fall_back(self, why):
        self._noisefloor_fell_back[why] += 1


def rearrange(weight, memory_format):
    with torch.inference_mode(weight.is_inference()):  # the parameter's own: it would become what the copy is
        weight.data = weight.detach().contiguous(memory_format=memory_format)


class Conv2d(Replacement):
    runs = "conv2d"

    @staticmethod
    def fits(module):
        need(module.groups == 1, f"groups={module.groups}")
        need(module.dilation == (1, 1), f"dilation={module.dilation}")
        need(module.padding_mode == "zeros", f"padding_mode='{module.padding_mode}'")
        need(not isinstance(module.padding, str), f"padding='{module.padding}'")
        for what in ("kernel_size", "stride", "padding"):
            high, wide = getattr(module, what)
            need(high == wide, f"{what}={(high, wide)}")
        cout, cin, kernel, _ = module.weight.shape
        need(kernel % 2 == 1, f"kernel_size={module.kernel_size}, which is even")
        need("weight" in module._parameters, "its weight is computed in each call")
        need("_conv_forward" not in module.__dict__, "its _conv_forward is replaced, as for pictures without seams")
        judged("conv2d", module.weight.dtype, x=(1, NOMINAL, NOMINAL, cin), w=(cout, kernel, kernel, cin), stride=module.stride[0], pad=module.padding[0])

    @staticmethod
    def convert(module):
        """The weights channels-last in place: the kernels read the parameter's own memory."""
        was_channels_last = module.weight.is_contiguous(memory_format=torch.channels_last)
        if not was_channels_last:
            rearrange(module.weight, torch.channels_last)
        module._noisefloor_laid_out = {}

        def restore():
            del module._noisefloor_laid_out
            if not was_channels_last:
                rearrange(module.weight, torch.contiguous_format)

        return restore

    @staticmethod
    def lay_out(module, name):
        LaidOut.add(module, name, False)

    def forward(self, input):
        weight = self.weight
        if why := misfit(input, weight.dtype, 4, 4, images=True):
            self.fall_back(why)
            return super().forward(input)
        return convolve(self, weight, input)


def convolve(conv, weight, x, residual=None, upsample=False, **more):
    kept = conv._noisefloor_laid_out
    laid_out = kept.get((upsample, weight.dtype, weight.device)) if kept else None  # none after the network was moved
    if laid_out is not None:
        more |= laid_out.arguments_for(weight)
    if residual is not None:
        more["residual"] = channels_last(residual)
    y = OPERATORS["conv2d"](channels_last(x), weight.permute(0, 2, 3, 1).contiguous(), conv.bias, stride=conv.stride[0], pad=conv.padding[0],
                            upsample=upsample, **more)
    if laid_out is not None:
        laid_out.was_made_of(weight)
    return channels_first(y)


class Linear(Replacement):
    runs = "gemm"

    @staticmethod
    def fits(module):
        judged("gemm", module.weight.dtype, a=(NOMINAL, module.in_features), b=module.weight.shape)

    def forward(self, input):
        weight = self.weight
        if why := misfit(input, weight.dtype, rows=True):
            self.fall_back(why)
            return super().forward(input)
        return multiply(self, weight, input)


def multiply(linear, weight, x, act="none", residual=None):
    rows = x.reshape(-1, x.shape[-1]).contiguous()
    residual = None if residual is None else residual.reshape(rows.shape[0], -1).contiguous()
    return OPERATORS["gemm"](rows, weight, linear.bias, residual, act=act).reshape(*x.shape[:-1], -1)


class GroupNorm(Replacement):
    runs = "groupnorm"

    @staticmethod
    def fits(module):
        need(module.affine, "it has no weights")
        c = module.num_channels
        judged("groupnorm", module.weight.dtype, x=(1, NOMINAL, c), gamma=(c,), beta=(c,), groups=module.num_groups, eps=module.eps)

    def forward(self, input):
        weight, fusion = self.weight, self.__dict__.get("_noisefloor_fusion", "none")
        if why := misfit(input, weight.dtype, 2, images=True):
            self.fall_back(why)
            y = super().forward(input)
            return y if fusion == "none" else nn.functional.silu(y)
        return normalize(self, weight, input, fusion)


def normalize(norm, weight, x, fusion, **more):
    dense = channels_last(x)
    rows = dense.reshape(dense.shape[0], -1, dense.shape[-1])
    y = OPERATORS["groupnorm"](rows, weight, norm.bias, groups=norm.num_groups, eps=norm.eps, fusion=fusion, **more)
    return channels_first(y.reshape(dense.shape))


class LayerNorm(Replacement):
    runs = "layernorm"

    @staticmethod
    def fits(module):
        need(len(module.normalized_shape) == 1, f"it is over {len(module.normalized_shape)} axes")
        need((module.weight is None) == (module.bias is None), "it has a weight and no bias")
        c = module.normalized_shape[0]
        affine = {} if module.weight is None else {"gamma": (c,), "beta": (c,)}
        judged("layernorm", torch.float32 if module.weight is None else module.weight.dtype, x=(NOMINAL, c), eps=module.eps, **affine)

    def forward(self, input):
        weight = self.weight
        why = misfit(input, input.dtype if weight is None else weight.dtype)
        if why is None and weight is None and input.size(-1) != self.normalized_shape[0]:
            why = "an input of another width"
        if why:
            self.fall_back(why)
            return super().forward(input)
        return OPERATORS["layernorm"](input.reshape(-1, input.shape[-1]).contiguous(), gamma=weight, beta=self.bias, eps=self.eps).reshape(input.shape)


LAYERS = {nn.Conv2d: Conv2d, nn.Linear: Linear, nn.GroupNorm: GroupNorm, nn.LayerNorm: LayerNorm}
