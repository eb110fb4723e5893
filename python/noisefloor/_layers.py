"""PyTorch's layers as `patch` has them: a Replacement for each kind, whose call is of an op.

Activations are channels-last from end to end: `permute(0, 2, 3, 1)` of such a tensor is the dense [n, h, w, c] that the ops take, and no copy.
Weights are read at each call.
"""

import weakref

import torch
from torch import nn

from noisefloor._operators import OPERATORS, prepare
from noisefloor._replacement import Replacement, judged, misfit, need, parameter

NOMINAL = 64  # height and width by which a convolution is judged and its weights are prepared; they do not follow it


class Packed:
    """Weights as a variant reads them on a GPU: summed behind an upsample, padded where the channels are no multiple of 8.

    Each call lays them out anew, in the same memory: PyTorch does not count what is written through `.data`, and to compare takes as long. Nothing of
    that is in a CUDA graph, which reads what the last call outside of one left there.
    """

    def __init__(self, conv, name, upsample):
        w = conv.weight.detach().permute(0, 2, 3, 1)
        made = prepare("conv2d", (1, NOMINAL, NOMINAL, w.shape[3]), w, stride=conv.stride[0], pad=conv.padding[0], upsample=upsample)
        self.name, self.arguments, self.of = name, {"variant": made.variant, "prepared": made.memory}, version(conv.weight)

    @staticmethod
    def serves(weight):
        """On the CPU each call lays weights out in scratch memory."""
        return weight.is_cuda

    def arguments_for(self, weight):
        if not torch.compiler.is_compiling() and torch.cuda.is_current_stream_capturing() and self.of != version(weight):
            raise ValueError(f"the weights of '{self.name}' changed since the last call: call the network once before a CUDA graph captures it")
        return self.arguments

    def was_made_of(self, weight):
        """Behind a call that returned."""
        if not torch.compiler.is_compiling() and not torch.cuda.is_current_stream_capturing():
            self.of = version(weight)


def version(weight):
    """Another one when it was written to, but not through `.data`, or is another one's memory."""
    return weight.data_ptr(), None if weight.is_inference() else weight._version


def channels_last(x):
    """[n, c, ...] as dense [n, ..., c]: a view where x is channels-last in memory."""
    return x.movedim(1, -1).contiguous()


def channels_first(y):
    return y.movedim(-1, 1)


def rearrange(weight, memory_format):
    with torch.inference_mode(weight.is_inference()):  # the parameter's own: it would become what the copy is
        weight.data = weight.detach().contiguous(memory_format=memory_format)


class Conv2d(Replacement):
    """Its weights are channels-last in place: the kernels read the parameter's own memory."""

    runs = "conv2d"
    functions = ("forward", "_conv_forward")
    asks = ("_conv_forward", "padding_mode", "padding", "stride", "dilation", "groups")

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

    def put(self, undo):
        self.packed, weight = {}, self.module.weight
        if not weight.is_contiguous(memory_format=torch.channels_last):
            kept = weakref.ref(weight)  # an offload may have dropped it, or put it elsewhere for a while

            def back():
                for one in {id(one): one for one in (kept(), self.module._parameters.get("weight")) if one is not None}.values():
                    if one.dim() == 4:
                        rearrange(one, torch.contiguous_format)

            undo.append(back)
            rearrange(weight, torch.channels_last)
        self.pack(self.name, False)
        super().put(undo)

    def pack(self, name, upsample):
        """For a variant that does not read the weights themselves."""
        weight = self.module.weight
        made = Packed(self.module, name, upsample) if Packed.serves(weight) else None
        if made is not None and made.arguments["prepared"] is not None:
            self.packed[upsample, weight.dtype, weight.device] = made

    def __call__(self, input):
        weight = parameter(self.module, "weight")
        if why := self.changed() or misfit(input, weight, 4, 4, images=True):
            return self.fall_back(why, input)
        return self.convolve(weight, input)

    def convolve(self, weight, x, residual=None, upsample=False, **more):
        conv, kept = self.module, self.packed
        packed = kept.get((upsample, weight.dtype, weight.device)) if kept else None  # none after the network was moved
        if packed is not None:
            more |= packed.arguments_for(weight)
        if residual is not None:
            more["residual"] = channels_last(residual)
        y = OPERATORS["conv2d"](channels_last(x), weight.permute(0, 2, 3, 1).contiguous(), parameter(conv, "bias"), stride=conv.stride[0], pad=conv.padding[0],
                                upsample=upsample, **more)
        if packed is not None:
            packed.was_made_of(weight)
        return channels_first(y)


class Linear(Replacement):
    runs = "gemm"

    @staticmethod
    def fits(module):
        judged("gemm", module.weight.dtype, a=(NOMINAL, module.in_features), b=module.weight.shape)

    def __call__(self, input):
        weight = parameter(self.module, "weight")
        if why := self.changed() or misfit(input, weight, rows=True):
            return self.fall_back(why, input)
        return self.multiply(weight, input)

    def multiply(self, weight, x, act="none", residual=None):
        rows = x.reshape(-1, x.shape[-1]).contiguous()
        more = {} if residual is None else {"residual": residual.reshape(rows.shape[0], -1).contiguous()}
        return OPERATORS["gemm"](rows, weight, parameter(self.module, "bias"), act=act, **more).reshape(*x.shape[:-1], -1)


class GroupNorm(Replacement):
    runs = "groupnorm"
    asks = ("num_groups", "eps")

    @staticmethod
    def fits(module):
        need(module.affine and module.bias is not None, "it has no weights")
        c = module.num_channels
        judged("groupnorm", module.weight.dtype, x=(1, NOMINAL, c), gamma=(c,), beta=(c,), groups=module.num_groups, eps=module.eps)

    def changed(self):
        return super().changed() or (None if self.module._parameters.get("bias") is not None else "has no bias, since patch")

    def __call__(self, input):
        weight = parameter(self.module, "weight")
        why = self.changed() or misfit(input, weight, 2, images=True)
        if why is None and torch.is_grad_enabled() and input.numel() == input.size(0) * self.module.num_groups:
            why = "one element a group, which has no gradient"
        if why:
            return self.fall_back(why, input)
        return self.normalize(weight, input, "none")

    def normalize(self, weight, x, fusion, **more):
        norm, dense = self.module, channels_last(x)
        rows = dense.reshape(dense.shape[0], -1, dense.shape[-1])
        y = OPERATORS["groupnorm"](rows, weight, parameter(norm, "bias"), groups=norm.num_groups, eps=norm.eps, fusion=fusion, **more)
        return channels_first(y.reshape(dense.shape))


class LayerNorm(Replacement):
    runs = "layernorm"
    asks = ("normalized_shape", "eps")

    @staticmethod
    def fits(module):
        need(len(module.normalized_shape) == 1, f"it is over {len(module.normalized_shape)} axes")
        need((module.weight is None) == (module.bias is None), "it has a weight and no bias")
        c = module.normalized_shape[0]
        affine = {} if module.weight is None else {"gamma": (c,), "beta": (c,)}
        judged("layernorm", torch.float32 if module.weight is None else module.weight.dtype, x=(NOMINAL, c), eps=module.eps, **affine)

    def __call__(self, input):
        module = self.module
        weight, bias = parameter(module, "weight"), parameter(module, "bias")
        why = self.changed() or misfit(input, input if weight is None else weight)
        if why is None and (weight is None) != (bias is None):
            why = "a weight or a bias alone"
        if why is None and weight is None and input.size(-1) != module.normalized_shape[0]:
            why = "an input of another width"
        if why:
            return self.fall_back(why, input)
        return OPERATORS["layernorm"](input.reshape(-1, input.shape[-1]).contiguous(), None, weight, bias, eps=module.eps).reshape(input.shape)


LAYERS = {nn.Conv2d: Conv2d, nn.Linear: Linear, nn.GroupNorm: GroupNorm, nn.LayerNorm: LayerNorm}
