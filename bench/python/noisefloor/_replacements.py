"""What `patch` puts into a network: a class for each kind of module, whose `forward` calls the ops.

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


def unhooked(module, *layers):
    """Of a module that computes these without calling them."""
    for name in layers:
        layer = getattr(module, name)
        need(not layer._forward_hooks and not layer._forward_pre_hooks, f"its {name} has hooks, which would not be called")


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
        weight = module.weight.detach()
        was_channels_last = weight.is_contiguous(memory_format=torch.channels_last)
        if not was_channels_last:
            module.weight.data = weight.contiguous(memory_format=torch.channels_last)
        module._noisefloor_laid_out = {}

        def restore():
            del module._noisefloor_laid_out
            if not was_channels_last:
                module.weight.data = module.weight.data.contiguous()

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
    if kept and (laid_out := kept.get((upsample, weight.dtype, weight.device))):  # not after the network was moved
        more |= laid_out.of_call(weight)
    if residual is not None:
        more["residual"] = channels_last(residual)
    y = OPERATORS["conv2d"](channels_last(x), weight.permute(0, 2, 3, 1).contiguous(), conv.bias, stride=conv.stride[0], pad=conv.padding[0],
                            upsample=upsample, **more)
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


def fits_projection(module):
    need(isinstance(module.proj, Linear), "its proj is no Linear that is replaced")
    unhooked(module, "proj")


class Geglu(Replacement):
    runs = "gemm"

    @staticmethod
    def fits(module):
        fits_projection(module)
        n, k = module.proj.weight.shape
        judged("gemm", module.proj.weight.dtype, a=(NOMINAL, k), b=(n, k), act="geglu")

    def forward(self, hidden_states, *args, **kwargs):
        proj = self.proj
        weight = proj.weight
        if why := misfit(hidden_states, weight.dtype, rows=True):
            self.fall_back(why)
            return super().forward(hidden_states, *args, **kwargs)
        return multiply(proj, weight, hidden_states, "geglu")


class Gelu(Replacement):
    runs = "gemm"
    ACT = {"none": "gelu", "tanh": "gelu_tanh"}

    @staticmethod
    def fits(module):
        need(module.approximate in Gelu.ACT, f"approximate='{module.approximate}'")
        fits_projection(module)

    def forward(self, hidden_states):
        proj = self.proj
        weight = proj.weight
        if why := misfit(hidden_states, weight.dtype, rows=True):
            self.fall_back(why)
            return super().forward(hidden_states)
        return multiply(proj, weight, hidden_states, Gelu.ACT[self.approximate])


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
        weight = self.conv.weight
        if why := "a given output_size" if output_size is not None else misfit(hidden_states, weight.dtype, 4, 4, images=True):
            self.fall_back(why)
            return super().forward(hidden_states, output_size, *args, **kwargs)
        return convolve(self.conv, weight, hidden_states, upsample=True)


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
        if why := misfit(input_tensor, conv1.weight.dtype, 4, 4, images=True):
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


class Transformer2DModel(Replacement):
    """Its last projection with the residual in it, and no copy to channels-first."""

    runs = "gemm or conv2d"

    @staticmethod
    def fits(module):
        need(module.is_input_continuous and isinstance(module.proj_out, (Linear, Conv2d)), "only its layers are replaced")
        need(hasattr(module, "_get_output_for_continuous_inputs"), "this diffusers has it otherwise")
        unhooked(module, "proj_out")

    def _get_output_for_continuous_inputs(self, hidden_states, residual, batch_size, height, width, inner_dim):
        proj_out = self.proj_out
        weight = proj_out.weight
        if why := misfit(hidden_states, weight.dtype, 3, 3) or misfit(residual, weight.dtype, 4, 4, images=True):
            self.fall_back(why)
            return super()._get_output_for_continuous_inputs(hidden_states, residual, batch_size, height, width, inner_dim)
        if isinstance(proj_out, Conv2d):
            return convolve(proj_out, weight, channels_first(hidden_states.reshape(batch_size, height, width, inner_dim)), residual)
        y = multiply(proj_out, weight, hidden_states, residual=channels_last(residual))
        return channels_first(y.reshape(batch_size, height, width, -1))


class AttentionProcessor(Replacement):
    """AttnProcessor2_0 with the op: queries, keys and values stay [batch, tokens, heads, dim]."""

    def __init__(self, processor):
        self.original = processor

    @staticmethod
    def fits(attn):
        kind = type(attn.processor).__name__
        need(kind in ("AttnProcessor", "AttnProcessor2_0"), f"its processor is {kind}")
        need(attn.norm_q is None and attn.norm_k is None, "it normalizes queries and keys")
        need(not getattr(attn, "is_causal", False), "it is causal")
        need(attn.inner_kv_dim == attn.inner_dim, "it has fewer heads of keys than of queries")
        need(kind == "AttnProcessor2_0" or attn.scale_qk, "it does not scale the scores")
        dim = attn.inner_dim // attn.heads
        judged("attention", attn.to_q.weight.dtype, **{name: (1, NOMINAL, attn.heads, dim) for name in "qkv"})

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None, temb=None, *args, **kwargs):
        why = "an attention mask" if attention_mask is not None else misfit(hidden_states, hidden_states.dtype, 3, 4)
        if why is None and encoder_hidden_states is not None:
            why = misfit(encoder_hidden_states, hidden_states.dtype, 3, 3)
        if why:
            self.fall_back(why)
            return self.original(attn, hidden_states, encoder_hidden_states, attention_mask, temb, *args, **kwargs)
        residual = hidden_states
        if attn.spatial_norm is not None:
            hidden_states = attn.spatial_norm(hidden_states, temb)
        image = hidden_states.shape if hidden_states.ndim == 4 else None
        if image is not None:
            hidden_states = channels_last(hidden_states).flatten(1, 2)
        if attn.group_norm is not None:
            hidden_states = attn.group_norm(hidden_states.transpose(1, 2)).transpose(1, 2)
        keys = hidden_states if encoder_hidden_states is None else encoder_hidden_states
        if encoder_hidden_states is not None and attn.norm_cross:
            keys = attn.norm_encoder_hidden_states(encoder_hidden_states)
        q, k, v = (project(tokens).unflatten(-1, (attn.heads, -1)).contiguous()
                   for project, tokens in ((attn.to_q, hidden_states), (attn.to_k, keys), (attn.to_v, keys)))
        y = attn.to_out[1](attn.to_out[0](OPERATORS["attention"](q, k, v).flatten(2)))
        if image is not None:
            y = channels_first(y.reshape(image[0], image[2], image[3], -1))
        if attn.residual_connection:
            y = y + residual
        return y if attn.rescale_output_factor == 1 else y / attn.rescale_output_factor


LAYERS = {nn.Conv2d: Conv2d, nn.Linear: Linear, nn.GroupNorm: GroupNorm, nn.LayerNorm: LayerNorm}
BLOCKS = {"ResnetBlock2D": ResnetBlock2D, "Upsample2D": Upsample2D, "GEGLU": Geglu, "GELU": Gelu, "Transformer2DModel": Transformer2DModel}
