"""Blocks of diffusers as `patch` has them, which compute layers inside of them without calling these, and attention's processor."""

from torch import nn

from noisefloor import _products
from noisefloor._laid_out import NOMINAL, LaidOut
from noisefloor._replacements import (
    OPERATORS, Conv2d, GroupNorm, Linear, Replacement, channels_first, channels_last, convolve, judged, misfit, multiply, need, normalize
)


def unhooked(module, *layers):
    """Of a module that computes these without calling them."""
    for name in layers:
        layer = getattr(module, name)
        need(not layer._forward_hooks and not layer._forward_pre_hooks, f"its {name} has hooks, which would not be called")


def swapped(*layers):
    """Why a block calls its layers after all; None where they are those that `patch` found."""
    return None if all([isinstance(layer, Replacement) for layer in layers]) else "a layer in it that was put there since"


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
        if why := swapped(proj) or misfit(hidden_states, proj.weight.dtype, rows=True):
            self.fall_back(why)
            return super().forward(hidden_states, *args, **kwargs)
        return multiply(proj, proj.weight, hidden_states, "geglu")


class Gelu(Replacement):
    runs = "gemm"
    ACT = {"none": "gelu", "tanh": "gelu_tanh"}

    @staticmethod
    def fits(module):
        need(module.approximate in Gelu.ACT, f"approximate='{module.approximate}'")
        fits_projection(module)

    def forward(self, hidden_states):
        proj = self.proj
        if why := swapped(proj) or misfit(hidden_states, proj.weight.dtype, rows=True):
            self.fall_back(why)
            return super().forward(hidden_states)
        return multiply(proj, proj.weight, hidden_states, Gelu.ACT[self.approximate])


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
        why = swapped(proj_out)
        if why := why or misfit(hidden_states, proj_out.weight.dtype, 3, 3) or misfit(residual, proj_out.weight.dtype, 4, 4, images=True):
            self.fall_back(why)
            return super()._get_output_for_continuous_inputs(hidden_states, residual, batch_size, height, width, inner_dim)
        if isinstance(proj_out, Conv2d):
            return convolve(proj_out, proj_out.weight, channels_first(hidden_states.reshape(batch_size, height, width, inner_dim)), residual)
        y = multiply(proj_out, proj_out.weight, hidden_states, residual=channels_last(residual))
        return channels_first(y.reshape(batch_size, height, width, -1))


class AttentionProcessor(Replacement):
    """AttnProcessor2_0 with the op: queries, keys and values stay [batch, tokens, heads, dim]."""

    def __init__(self, processor, together):
        self.original, self.together = processor, together

    @staticmethod
    def side_by_side(attn):
        """Of to_q, to_k and to_v the last ones that can be one product (3, 2 or none), and what gives their weights back."""
        layers = (attn.to_q, attn.to_k, attn.to_v)
        for joint in (layers, layers[1:]):
            if _products.fit(joint, Linear):
                return len(joint), _products.lay(joint)
        return 0, lambda: None

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

    def project(self, attn, tokens, keys):
        layers = (attn.to_q, attn.to_k, attn.to_v)
        joint = layers if self.together == 3 and keys is tokens else layers[1:]
        if not self.together or swapped(*joint) or misfit(keys, joint[0].weight.dtype, rows=True):
            return attn.to_q(tokens), attn.to_k(keys), attn.to_v(keys)
        products = OPERATORS["products"](keys.flatten(0, 1).contiguous(), [layer.weight for layer in joint])
        last = products.unflatten(1, keys.shape[:2]).unbind(0)
        return last if len(last) == 3 else (attn.to_q(tokens), *last)

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
        q, k, v = (one.unflatten(-1, (attn.heads, -1)).contiguous() for one in self.project(attn, hidden_states, keys))
        y = attn.to_out[1](attn.to_out[0](OPERATORS["attention"](q, k, v).flatten(2)))
        if image is not None:
            y = channels_first(y.reshape(image[0], image[2], image[3], -1))
        if attn.residual_connection:
            y = y + residual
        return y if attn.rescale_output_factor == 1 else y / attn.rescale_output_factor


BLOCKS = {"ResnetBlock2D": ResnetBlock2D, "Upsample2D": Upsample2D, "GEGLU": Geglu, "GELU": Gelu, "Transformer2DModel": Transformer2DModel}
