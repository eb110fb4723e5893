"""What `patch` puts into a network: a class for each kind of module, whose `forward` calls the ops.

`fits` raises Unfit where the ops cannot do what the module does; `convert` changes what the module holds and returns what puts it back; `runs`
names the ops. Activations are channels-last from end to end: `permute(0, 2, 3, 1)` of such a tensor is the dense [n, h, w, c] that the ops
take, and no copy.
"""

import torch
from torch import nn

from noisefloor import _frameworks, _signatures

NOMINAL = 64  # height and width by which a convolution is judged and its weights are prepared; they do not follow it


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


def op(name):
    from noisefloor import torch as operators

    return getattr(operators, name)


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


class Conv2d:
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
        judged("conv2d", module.weight.dtype, x=(1, NOMINAL, NOMINAL, cin), w=(cout, kernel, kernel, cin), stride=module.stride[0], pad=module.padding[0])

    @staticmethod
    def convert(module, name):
        """The weights channels-last in place, and what a variant lays out of them once, for the plain convolution and for one behind an upsample."""
        weight = module.weight.detach()
        was_channels_last = weight.is_contiguous(memory_format=torch.channels_last)
        if not was_channels_last:
            module.weight.data = weight.contiguous(memory_format=torch.channels_last)
        module._noisefloor = {False: Conv2d.prepared(module, False), "of": (name, *state(module.weight))}

        def restore():
            del module._noisefloor
            if not was_channels_last:
                module.weight.data = module.weight.data.contiguous()

        return restore

    @staticmethod
    def prepared(module, upsample):
        w = module.weight.detach().permute(0, 2, 3, 1)
        made = op("prepare")("conv2d", (1, NOMINAL, NOMINAL, w.shape[3]), w, stride=module.stride[0], pad=module.padding[0], upsample=upsample)
        return {} if made.memory is None else {"variant": made.variant, "prepared": made.memory}

    def __setstate__(self, given):
        super().__setstate__(given)
        self._noisefloor["of"] = (self._noisefloor["of"][0], *state(self.weight))  # a copy has its own

    def forward(self, x):
        return convolve(self, x)


def state(weight):
    """Another one when it was written to, or is another one's memory."""
    return weight.data_ptr(), None if weight.is_inference() else weight._version


def require_unchanged(conv):
    name, *before = conv._noisefloor["of"]
    if before != list(state(conv.weight)):
        raise ValueError(f"the weights of '{name}' changed after patch laid them out: undo, change them, and patch again")


def convolve(conv, x, residual=None, upsample=False, **more):
    laid_out, weight = conv._noisefloor[upsample], conv.weight
    if laid_out and not torch.compiler.is_compiling():
        require_unchanged(conv)
    if residual is not None:
        more["residual"] = channels_last(residual)
    y = op("conv2d")(channels_last(x), weight.permute(0, 2, 3, 1), conv.bias, stride=conv.stride[0], pad=conv.padding[0], upsample=upsample,
                     **more, **laid_out)
    return channels_first(y)


class Linear:
    runs = "gemm"

    @staticmethod
    def fits(module):
        judged("gemm", module.weight.dtype, a=(NOMINAL, module.in_features), b=module.weight.shape)

    def forward(self, x):
        return multiply(self, x)


def multiply(linear, x, act="none", residual=None):
    rows = x.reshape(-1, x.shape[-1]).contiguous()
    residual = None if residual is None else residual.reshape(rows.shape[0], -1).contiguous()
    return op("gemm")(rows, linear.weight, linear.bias, residual, act=act).reshape(*x.shape[:-1], -1)


class GroupNorm:
    runs = "groupnorm"

    @staticmethod
    def fits(module):
        need(module.affine, "it has no weights")
        c = module.num_channels
        judged("groupnorm", module.weight.dtype, x=(1, NOMINAL, c), gamma=(c,), beta=(c,), groups=module.num_groups, eps=module.eps)

    def forward(self, x):
        return normalize(self, x, self.__dict__.get("_noisefloor_fusion", "none"))


def normalize(norm, x, fusion, **more):
    dense = channels_last(x)
    rows = dense.reshape(dense.shape[0], -1, dense.shape[-1])
    y = op("groupnorm")(rows, norm.weight, norm.bias, groups=norm.num_groups, eps=norm.eps, fusion=fusion, **more)
    return channels_first(y.reshape(dense.shape))


class LayerNorm:
    runs = "layernorm"

    @staticmethod
    def fits(module):
        need(len(module.normalized_shape) == 1, f"it is over {len(module.normalized_shape)} axes")
        need((module.weight is None) == (module.bias is None), "it has a weight and no bias")
        c = module.normalized_shape[0]
        affine = {} if module.weight is None else {"gamma": (c,), "beta": (c,)}
        judged("layernorm", torch.float32 if module.weight is None else module.weight.dtype, x=(NOMINAL, c), eps=module.eps, **affine)

    def forward(self, x):
        return op("layernorm")(x.reshape(-1, x.shape[-1]).contiguous(), gamma=self.weight, beta=self.bias, eps=self.eps).reshape(x.shape)


def fits_projection(module):
    need(isinstance(module.proj, Linear), "its proj is no Linear that is replaced")
    unhooked(module, "proj")


class Geglu:
    runs = "gemm"

    @staticmethod
    def fits(module):
        fits_projection(module)
        n, k = module.proj.weight.shape
        judged("gemm", module.proj.weight.dtype, a=(NOMINAL, k), b=(n, k), act="geglu")

    def forward(self, hidden_states, *args, **kwargs):
        return multiply(self.proj, hidden_states, "geglu")


class Gelu:
    runs = "gemm"
    ACT = {"none": "gelu", "tanh": "gelu_tanh"}

    @staticmethod
    def fits(module):
        need(module.approximate in Gelu.ACT, f"approximate='{module.approximate}'")
        fits_projection(module)

    def forward(self, hidden_states):
        return multiply(self.proj, hidden_states, Gelu.ACT[self.approximate])


class Upsample2D:
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
    def convert(module, _):
        module.conv._noisefloor[True] = Conv2d.prepared(module.conv, True)
        return lambda: module.conv._noisefloor.pop(True)

    def forward(self, hidden_states, output_size=None, *args, **kwargs):
        if output_size is None:
            return convolve(self.conv, hidden_states, upsample=True)
        return original(self).forward(self, hidden_states, output_size, *args, **kwargs)


class ResnetBlock2D:
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
        x = normalize(self.norm1, input_tensor, "silu")
        resample = self.upsample if self.upsample is not None else self.downsample
        if resample is not None:
            input_tensor, x = resample(input_tensor), resample(x)
        if self.time_emb_proj is not None:
            temb = self.time_emb_proj(temb if self.skip_time_act else self.nonlinearity(temb)).expand(x.shape[0], -1).contiguous()
        shift = {"image_shift": temb} if self.time_embedding_norm == "default" and self.time_emb_proj is not None else {}
        x = convolve(self.conv1, x, **shift)
        if self.time_embedding_norm == "default" and not shift and temb is not None:
            x = x + temb
        if self.time_embedding_norm == "scale_shift":
            x = normalize(self.norm2, x, "silu+ss", scale_shift=temb)
        else:
            x = normalize(self.norm2, x, "silu")
        if self.conv_shortcut is not None:
            input_tensor = self.conv_shortcut(input_tensor)
        return convolve(self.conv2, self.dropout(x), residual=input_tensor, gain=1 / self.output_scale_factor)


class Transformer2DModel:
    """Its last projection with the residual in it, and no copy to channels-first."""

    runs = "gemm or conv2d"

    @staticmethod
    def fits(module):
        need(module.is_input_continuous and isinstance(module.proj_out, (Linear, Conv2d)), "only its layers are replaced")
        need(hasattr(module, "_get_output_for_continuous_inputs"), "this diffusers has it otherwise")
        unhooked(module, "proj_out")

    def _get_output_for_continuous_inputs(self, hidden_states, residual, batch_size, height, width, inner_dim):
        if isinstance(self.proj_out, Conv2d):
            return convolve(self.proj_out, channels_first(hidden_states.reshape(batch_size, height, width, inner_dim)), residual)
        y = multiply(self.proj_out, hidden_states, residual=channels_last(residual))
        return channels_first(y.reshape(batch_size, height, width, -1))


class AttentionProcessor:
    """AttnProcessor2_0 with the op: queries, keys and values stay [batch, tokens, heads, dim]. With a mask the original serves."""

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
        if attention_mask is not None:
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
        y = attn.to_out[1](attn.to_out[0](op("attention")(q, k, v).flatten(2)))
        if image is not None:
            y = channels_first(y.reshape(image[0], image[2], image[3], -1))
        if attn.residual_connection:
            y = y + residual
        return y if attn.rescale_output_factor == 1 else y / attn.rescale_output_factor


def original(module):
    """The class that a replaced module had."""
    return type(module).__mro__[2]


LAYERS = {nn.Conv2d: Conv2d, nn.Linear: Linear, nn.GroupNorm: GroupNorm, nn.LayerNorm: LayerNorm}
BLOCKS = {"ResnetBlock2D": ResnetBlock2D, "Upsample2D": Upsample2D, "GEGLU": Geglu, "GELU": Gelu, "Transformer2DModel": Transformer2DModel}
