"""Transformers of diffusers as `patch` has them, and attention."""

import torch
from torch import nn

from noisefloor import _products
from noisefloor._blocks import is_replaced, of_diffusers
from noisefloor._layers import NOMINAL, Conv2d, Linear, channels_first, channels_last
from noisefloor._operators import OPERATORS
from noisefloor._replacement import Replacement, altered, hooks_of_every_module, judged, misfit, need, parameter, standing


class Projecting(Replacement):
    """Layers of a feed-forward that project, and have an activation behind that."""

    runs = "gemm"
    asks = ("approximate",)
    computes = ("proj",)
    ACTS = {"none": "gelu", "tanh": "gelu_tanh"}  # by GELU's own word

    def __init__(self, module, *more):
        super().__init__(module, *more)
        self.activation = self.act(module)

    @classmethod
    def act(cls, module):
        return "geglu" if of_diffusers(module) == "GEGLU" else cls.ACTS.get(module.approximate)

    @classmethod
    def fits(cls, module):
        act = cls.act(module)
        need(act is not None, f"approximate='{getattr(module, 'approximate', None)}'")
        need(is_replaced(module.proj, Linear) or "forward" in module.proj.__dict__, "its proj is no Linear that is replaced")
        n, k = module.proj.weight.shape
        judged("gemm", module.proj.weight.dtype, a=(NOMINAL, k), b=(n, k), act=act)

    def __call__(self, hidden_states, *args, **kwargs):
        why, layers = self.inside()
        weights = [parameter(one.module, "weight") for one in layers]
        if why := self.changed() or why or misfit(hidden_states, weights[0], rows=True):
            return self.fall_back(why, hidden_states, *args, **kwargs)
        if self.activation == "gelu_tanh" and torch.is_grad_enabled():  # which has no backward op
            return nn.functional.gelu(layers[0].multiply(weights[0], hidden_states), approximate="tanh")
        return layers[0].multiply(weights[0], hidden_states, self.activation)


class Transformer2DModel(Replacement):
    """Its last projection with the residual in it, and no copy to channels-first."""

    runs = "gemm or conv2d"
    functions = ("_get_output_for_continuous_inputs",)
    asks = ("is_input_continuous", "use_linear_projection")
    computes = ("proj_out",)

    @classmethod
    def check(cls, module):
        need(hasattr(module, cls.functions[0]), "this diffusers has it otherwise")
        super().check(module)

    @staticmethod
    def fits(module):
        proj_out = getattr(module, "proj_out", None)
        need(module.is_input_continuous and (is_replaced(proj_out, (Linear, Conv2d)) or "forward" in vars(proj_out or module)), "only its layers are replaced")

    def __call__(self, hidden_states, residual, batch_size, height, width, inner_dim):
        why, layers = self.inside()
        weights = [parameter(one.module, "weight") for one in layers]
        if why := self.changed() or why or misfit(hidden_states, weights[0], 3, 3) or misfit(residual, weights[0], 4, 4, images=True):
            return self.fall_back(why, hidden_states, residual, batch_size, height, width, inner_dim)
        if isinstance(layers[0], Conv2d):
            return layers[0].convolve(weights[0], channels_first(hidden_states.reshape(batch_size, height, width, inner_dim)), residual)
        y = layers[0].multiply(weights[0], hidden_states, residual=channels_last(residual))
        return channels_first(y.reshape(batch_size, height, width, -1))


class Attention(Replacement):
    """With AttnProcessor2_0's formula and the op: queries, keys and values stay [batch, tokens, heads, dim]. The processor itself stays where it is."""

    runs = "attention"
    asks = ("norm_q", "norm_k", "is_causal", "inner_kv_dim", "inner_dim", "heads", "scale_qk", "scale", "get_attention_scores")

    def __init__(self, module, *more):
        super().__init__(module, *more)
        self.processor = type(module.processor), type(module.processor).__call__

    @staticmethod
    def fits(attn):
        kind = of_diffusers(attn.processor)
        need(kind in ("AttnProcessor", "AttnProcessor2_0"), f"its processor is {type(attn.processor).__name__}")
        need(type(attn.processor).__call__.__module__.startswith("diffusers."), f"{kind}.__call__ is replaced")
        need(attn.norm_q is None and attn.norm_k is None, "it normalizes queries and keys")
        need(not getattr(attn, "is_causal", False), "it is causal")
        need(attn.inner_kv_dim == attn.inner_dim, "it has fewer heads of keys than of queries")
        dim = attn.inner_dim // attn.heads
        need(kind == "AttnProcessor2_0" or (attn.scale_qk and abs(attn.scale * dim**0.5 - 1) < 1e-6), "it does not scale the scores as usual")
        need("get_attention_scores" not in attn.__dict__, "its get_attention_scores is replaced")
        judged("attention", attn.to_q.weight.dtype, **{name: (1, NOMINAL, attn.heads, dim) for name in "qkv"})

    def put(self, undo):
        """Lays the weights of to_q, to_k and to_v, or of the last two, side by side where they can be one product."""
        layers, self.together = (self.module.to_q, self.module.to_k, self.module.to_v), 0
        for joint in (layers, layers[1:]):
            if not self.together and _products.fit(joint) and all(isinstance(standing(one), Linear) for one in joint):
                self.together = len(joint)
                undo.append(_products.lay(joint))
        super().put(undo)

    def changed(self):
        processor = self.module.processor.__class__
        if (processor, processor.__call__) != self.processor:
            return super().changed() or f"has another processor since patch: {processor.__name__}"
        return super().changed()

    def project(self, attn, tokens, keys):
        layers = (attn.to_q, attn.to_k, attn.to_v)
        joint = layers if self.together == 3 and keys is tokens else layers[1:]
        alone = not self.together or hooks_of_every_module() or any([standing(one) is None or one._parameters.get("bias", ...) is not None for one in joint])
        weights = [] if alone else [parameter(one, "weight") for one in joint]
        if alone or any([misfit(keys, one, rows=True) for one in weights]):
            return attn.to_q(tokens), attn.to_k(keys), attn.to_v(keys)
        products = OPERATORS["products"](keys.flatten(0, 1).contiguous(), weights)
        last = products.unflatten(1, keys.shape[:2]).unbind(0)
        return last if len(last) == 3 else (attn.to_q(tokens), *last)

    def __call__(self, hidden_states, encoder_hidden_states=None, attention_mask=None, *, temb=None, **kwargs):
        why = self.changed() or ("an attention mask" if attention_mask is not None else "cross_attention_kwargs" if kwargs else None)
        if why := why or self.misfit(hidden_states, encoder_hidden_states):
            return self.fall_back(why, hidden_states, encoder_hidden_states, attention_mask, **({} if temb is None else {"temb": temb}), **kwargs)
        return self.attend(hidden_states, encoder_hidden_states, temb)

    def misfit(self, x, keys):
        why = misfit(x, x, 3, 4)
        return why if why or keys is None else misfit(keys, x, 3, 3)

    def attend_and_add(self, x, keys, residual):
        """What a block that does not call it adds to its input."""
        if why := self.misfit(x, keys):
            return self.fall_back(why, x, keys) + residual
        return self.attend(x, keys, None, residual)

    def attend(self, hidden_states, encoder_hidden_states, temb, block_residual=None):
        attn, residual = self.module, hidden_states
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
        if block_residual is not None and len(attn.to_out) == 2 and not attn.residual_connection and attn.rescale_output_factor == 1:
            return project_and_add(*attn.to_out, y, block_residual)
        y = attn.to_out[1](attn.to_out[0](y))
        if image is not None:
            y = channels_first(y.reshape(image[0], image[2], image[3], -1))
        if attn.residual_connection:
            y = y + residual
        if attn.rescale_output_factor != 1:
            y = y / attn.rescale_output_factor
        return y if block_residual is None else y + block_residual


def drops(layer):
    return altered(layer) or (type(layer) is not nn.Identity and (type(layer) is not nn.Dropout or (layer.training and layer.p > 0)))


def project_and_add(first, second, x, residual):
    """Of a projection and a dropout one behind the other, in either order: the residual in the product, where the dropout does nothing."""
    for linear, other in ((first, second), (second, first)):
        one = standing(linear)
        if isinstance(one, Linear) and not drops(other):
            weight = parameter(linear, "weight")
            if residual.dtype is x.dtype and residual.shape == (*x.shape[:-1], linear.out_features) and misfit(x, weight, rows=True) is None:
                return one.multiply(weight, x, residual=residual)
    return second(first(x)) + residual


class Block(Replacement):
    """Adds each layer's input to its output: in the product where that is projected."""

    runs = "gemm"

    @staticmethod
    def fits_layers(module, feeding):
        for name in ("attn1", "attn2"):
            if (attn := getattr(module, name)) is not None:
                need(of_diffusers(attn) == "Attention", f"its {name} is no Attention of diffusers'")
                need(is_replaced(attn, Attention) or "forward" in attn.__dict__, f"the processor of its {name} is left")
        for name in feeding:
            ff = getattr(module, name)
            need(of_diffusers(ff) == "FeedForward", f"its {name} is no FeedForward of diffusers'")
            need(len(ff.net) == 3 and is_replaced(ff.net[2], Linear), f"its {name} does not end with a Linear that is replaced")

    def trouble(self, x):
        """(Why it must call its layers, or None; the replacements of its attentions)"""
        why, attention = self.inside()
        why = self.changed() or why or ("feeding forward in chunks" if self.module._chunk_size is not None else None)
        return why or misfit(x, x, 3, 3), attention

    def feed_forward(self, name, x, residual):
        first, *rest = self.module._modules[name].net
        x = first(x)
        if len(rest) == 2:
            return project_and_add(*rest, x, residual)
        for layer in rest:
            x = layer(x)
        return x + residual


class BasicTransformerBlock(Block):
    asks = ("norm_type", "pos_embed", "attn2")
    computes = ("attn1", "attn2")
    restates = ("ff",)

    @staticmethod
    def fits(module):
        need(module.norm_type == "layer_norm", f"its norm_type is {module.norm_type}")
        need(module.pos_embed is None, "it adds places")
        Block.fits_layers(module, ("ff",))

    def __call__(self, hidden_states, attention_mask=None, encoder_hidden_states=None, encoder_attention_mask=None, timestep=None,
                 cross_attention_kwargs=None, *args, **kwargs):  # fmt: skip
        why, attention = self.trouble(hidden_states)
        if attention_mask is not None or encoder_attention_mask is not None:
            why = why or "an attention mask"
        if cross_attention_kwargs:
            why = why or "cross_attention_kwargs"
        if why:
            return self.fall_back(why, hidden_states, attention_mask, encoder_hidden_states, encoder_attention_mask, timestep, cross_attention_kwargs,
                                  *args, **kwargs)  # fmt: skip
        module, x = self.module, hidden_states
        x = attention[0].attend_and_add(module.norm1(x), encoder_hidden_states if module.only_cross_attention else None, x)
        if len(attention) == 2:
            x = attention[1].attend_and_add(module.norm2(x), encoder_hidden_states, x)
        return self.feed_forward("ff", module.norm3(x), x)


class TemporalBasicTransformerBlock(Block):
    """The same along frames: pixels are the batch."""

    asks = ("is_res", "attn2")
    computes = ("attn1", "attn2")
    restates = ("ff_in", "ff")

    @staticmethod
    def fits(module):
        need(module.is_res, "its frames have another width")
        Block.fits_layers(module, ("ff_in", "ff"))

    def __call__(self, hidden_states, num_frames, encoder_hidden_states=None):
        why, attention = self.trouble(hidden_states)
        if why:
            return self.fall_back(why, hidden_states, num_frames, encoder_hidden_states)
        module, pixels = self.module, hidden_states.shape[1]
        x = hidden_states.unflatten(0, (-1, num_frames)).transpose(1, 2).flatten(0, 1)
        x = self.feed_forward("ff_in", module.norm_in(x), x)
        x = attention[0].attend_and_add(module.norm1(x), None, x)
        if len(attention) == 2:
            x = attention[1].attend_and_add(module.norm2(x), encoder_hidden_states, x)
        x = self.feed_forward("ff", module.norm3(x), x)
        return x.unflatten(0, (-1, pixels)).transpose(1, 2).flatten(0, 1)


# By the names of diffusers' classes; those of the second kind behind those of the first.
TRANSFORMERS = {"GEGLU": Projecting, "GELU": Projecting, "Transformer2DModel": Transformer2DModel, "Attention": Attention}
TRANSFORMER_BLOCKS = {"BasicTransformerBlock": BasicTransformerBlock, "TemporalBasicTransformerBlock": TemporalBasicTransformerBlock}
