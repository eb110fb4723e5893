"""Transformers of diffusers as `patch` has them, and attention's processor."""

from torch import nn

from noisefloor import _products
from noisefloor._blocks import altered, of_diffusers, swapped, unhooked
from noisefloor._laid_out import NOMINAL
from noisefloor._replacements import (
    OPERATORS, Conv2d, Linear, Replacement, channels_first, channels_last, convolve, judged, misfit, multiply, need
)


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

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None, temb=None, *args, block_residual=None, **kwargs):
        why = "an attention mask" if attention_mask is not None else misfit(hidden_states, hidden_states.dtype, 3, 4)
        if why is None and encoder_hidden_states is not None:
            why = misfit(encoder_hidden_states, hidden_states.dtype, 3, 3)
        if why:
            self.fall_back(why)
            y = self.original(attn, hidden_states, encoder_hidden_states, attention_mask, temb, *args, **kwargs)
            return y if block_residual is None else y + block_residual
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
        y = OPERATORS["attention"](q, k, v).flatten(2)
        if block_residual is not None and not attn.residual_connection and attn.rescale_output_factor == 1 and adds(attn.to_out, y, block_residual):
            return multiply(attn.to_out[0], attn.to_out[0].weight, y, residual=block_residual)
        y = attn.to_out[1](attn.to_out[0](y))
        if image is not None:
            y = channels_first(y.reshape(image[0], image[2], image[3], -1))
        if attn.residual_connection:
            y = y + residual
        if attn.rescale_output_factor != 1:
            y = y / attn.rescale_output_factor
        return y if block_residual is None else y + block_residual


def drops(layer):
    return type(layer) is not nn.Identity and (type(layer) is not nn.Dropout or (layer.training and layer.p > 0))


def adds(layers, x, residual):
    """Whether layers, but for a dropout nothing but a projection of x, are one product with the residual in it."""
    linear = next((one for one in layers if isinstance(one, nn.Linear)), None)
    rest = [one for one in layers if one is not linear]
    if not isinstance(linear, Linear) or any([altered(one) for one in layers]) or any([drops(one) for one in rest]):
        return False
    same = residual.dtype is x.dtype and residual.shape == (*x.shape[:-1], linear.out_features)
    return same and misfit(x, linear.weight.dtype, rows=True) is None


def fits_block(module, *feeding):
    """Of a block that adds each layer's input to its output."""
    attention = [name for name in ("attn1", "attn2") if getattr(module, name) is not None]
    for name, kind in [*((name, "Attention") for name in attention), *((name, "FeedForward") for name in feeding)]:
        need(of_diffusers(getattr(module, name)) == kind, f"its {name} is no {kind} of diffusers'")
    unhooked(module, *attention, *feeding)
    for name in attention:
        need(type(getattr(module, name).processor) is AttentionProcessor, f"the processor of its {name} is left")
    for name in feeding:
        net = getattr(module, name).net
        need(len(net) == 3 and isinstance(net[2], Linear), f"its {name} does not end with a Linear that is replaced")
        unhooked(net, "1", "2")


def attend(attn, x, keys, residual):
    return attn.processor(attn, x, keys, block_residual=residual)


def feed_forward(ff, x, residual):
    """The residual where it is projected last."""
    first, *rest = ff.net
    x = first(x)
    if adds(rest, x, residual):
        return multiply(rest[1], rest[1].weight, x, residual=residual)
    for layer in rest:
        x = layer(x)
    return x + residual


def strange(block, hidden_states, *feeding):
    """Why a block calls its layers after all; None where they are those that `patch` found, and it is asked what they do."""
    attention = [attn for attn in (block.attn1, block.attn2) if attn is not None]
    if not all([type(attn.processor) is AttentionProcessor for attn in attention]):
        return "an attention in it with another processor"
    if any([altered(one) for one in (*attention, *feeding)]):
        return "a layer in it with hooks, or with its forward replaced"
    if block._chunk_size is not None:
        return "feeding forward in chunks"
    return swapped(*[ff.net[2] for ff in feeding]) or misfit(hidden_states, hidden_states.dtype, 3, 3)


class BasicTransformerBlock(Replacement):
    """Each residual where the layer before it is projected."""

    runs = "gemm"

    @staticmethod
    def fits(module):
        need(module.norm_type == "layer_norm", f"its norm_type is {module.norm_type}")
        need(module.pos_embed is None, "it adds places")
        fits_block(module, "ff")

    def forward(self, hidden_states, attention_mask=None, encoder_hidden_states=None, encoder_attention_mask=None, timestep=None,
                cross_attention_kwargs=None, *args, **kwargs):  # fmt: skip
        why = strange(self, hidden_states, self.ff)
        if attention_mask is not None or encoder_attention_mask is not None:
            why = "an attention mask"
        elif cross_attention_kwargs:
            why = "cross_attention_kwargs"
        if why:
            self.fall_back(why)
            return super().forward(hidden_states, attention_mask, encoder_hidden_states, encoder_attention_mask, timestep, cross_attention_kwargs,
                                   *args, **kwargs)  # fmt: skip
        x = hidden_states
        x = attend(self.attn1, self.norm1(x), encoder_hidden_states if self.only_cross_attention else None, x)
        if self.attn2 is not None:
            x = attend(self.attn2, self.norm2(x), encoder_hidden_states, x)
        return feed_forward(self.ff, self.norm3(x), x)


class TemporalBasicTransformerBlock(Replacement):
    """The same along frames: pixels are the batch."""

    runs = "gemm"

    @staticmethod
    def fits(module):
        need(module.is_res, "its frames have another width")
        fits_block(module, "ff_in", "ff")

    def forward(self, hidden_states, num_frames, encoder_hidden_states=None):
        if why := strange(self, hidden_states, self.ff_in, self.ff):
            self.fall_back(why)
            return super().forward(hidden_states, num_frames, encoder_hidden_states)
        pixels = hidden_states.shape[1]
        x = hidden_states.unflatten(0, (-1, num_frames)).transpose(1, 2).flatten(0, 1)
        x = feed_forward(self.ff_in, self.norm_in(x), x)
        x = attend(self.attn1, self.norm1(x), None, x)
        if self.attn2 is not None:
            x = attend(self.attn2, self.norm2(x), encoder_hidden_states, x)
        x = feed_forward(self.ff, self.norm3(x), x)
        return x.unflatten(0, (-1, pixels)).transpose(1, 2).flatten(0, 1)


# By the names of diffusers' classes; those of the second kind behind the processors.
TRANSFORMERS = {"GEGLU": Geglu, "GELU": Gelu, "Transformer2DModel": Transformer2DModel}
TRANSFORMER_BLOCKS = {"BasicTransformerBlock": BasicTransformerBlock, "TemporalBasicTransformerBlock": TemporalBasicTransformerBlock}
