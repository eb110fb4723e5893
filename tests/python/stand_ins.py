"""What diffusers, peft and accelerate do to a network, in a few lines each: for tests of patch that need PyTorch alone."""

from torch import nn
from torch.nn import functional as F


class ResnetBlock2D(nn.Module):
    upsample = downsample = time_emb_proj = conv_shortcut = None
    time_embedding_norm, skip_time_act, output_scale_factor = "default", False, 1.0

    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(2, width), nn.GroupNorm(2, width)
        self.conv1, self.conv2 = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.nonlinearity, self.dropout = nn.SiLU(), nn.Dropout(0.0)

    def forward(self, input_tensor, temb=None, *args, **kwargs):
        x = self.conv1(self.nonlinearity(self.norm1(input_tensor)))
        return input_tensor + self.conv2(self.dropout(self.nonlinearity(self.norm2(x))))


class Upsample2D(nn.Module):
    use_conv, interpolate, norm = True, True, None

    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, hidden_states, output_size=None, *args, **kwargs):
        return self.conv(F.interpolate(hidden_states, scale_factor=2.0, mode="nearest"))


class AttnProcessor2_0:
    def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None, temb=None, *args, **kwargs):
        keys = hidden_states if encoder_hidden_states is None else encoder_hidden_states
        q, k, v = (one.unflatten(-1, (attn.heads, -1)).transpose(1, 2) for one in (attn.to_q(hidden_states), attn.to_k(keys), attn.to_v(keys)))
        q = q if attn.norm_q is None else attn.norm_q(q)
        made = attn.to_out[1](attn.to_out[0](F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)))
        return made / attn.rescale_output_factor


class Attention(nn.Module):
    spatial_norm = group_norm = None
    norm_cross = residual_connection = is_causal = False
    scale_qk, rescale_output_factor = True, 1.0

    def __init__(self, width, heads=2):
        super().__init__()
        self.heads, self.inner_dim, self.inner_kv_dim, self.norm_q, self.norm_k = heads, width, width, None, None
        self.to_q, self.to_k, self.to_v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.to_out, self.processor = nn.ModuleList([nn.Linear(width, width), nn.Dropout(0.0)]), AttnProcessor2_0()

    def set_processor(self, processor):
        self._modules.pop("processor", None)
        self.processor = processor

    def forward(self, hidden_states, encoder_hidden_states=None, attention_mask=None, **kwargs):
        return self.processor(self, hidden_states, encoder_hidden_states=encoder_hidden_states, attention_mask=attention_mask, **kwargs)


class GEGLU(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.proj = nn.Linear(width, 2 * inner)

    def forward(self, hidden_states):
        x, gate = self.proj(hidden_states).chunk(2, dim=-1)
        return x * F.gelu(gate)


class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.ModuleList([GEGLU(width, 2 * width), nn.Dropout(0.0), nn.Linear(2 * width, width)])

    def forward(self, hidden_states):
        for layer in self.net:
            hidden_states = layer(hidden_states)
        return hidden_states


class BasicTransformerBlock(nn.Module):
    norm_type, pos_embed, only_cross_attention, _chunk_size = "layer_norm", None, False, None

    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.attn1, self.attn2, self.ff = Attention(width), Attention(width), FeedForward(width)

    def forward(self, hidden_states, attention_mask=None, encoder_hidden_states=None, *args, **kwargs):
        x = hidden_states + self.attn1(self.norm1(hidden_states))
        x = x + self.attn2(self.norm2(x), encoder_hidden_states=encoder_hidden_states)
        return x + self.ff(self.norm3(x))


for one in (ResnetBlock2D, Upsample2D, AttnProcessor2_0, Attention, GEGLU, FeedForward, BasicTransformerBlock):
    for what in (one, *[value for value in vars(one).values() if callable(value) and hasattr(value, "__code__")]):
        what.__module__ = "diffusers.models"  # patch knows the blocks by that


class Adapted(nn.Module):
    """As peft's layers: two small ones beside the one that was there, made by its class."""

    def __init__(self, layer):
        super().__init__()
        self.base_layer = layer
        kind = type(layer)
        if isinstance(layer, nn.Conv2d):
            self.down = kind(layer.in_channels, 2, layer.kernel_size, layer.stride, layer.padding, bias=False)
            self.up = kind(2, layer.out_channels, (1, 1), bias=False)
        else:
            self.down, self.up = kind(layer.in_features, 2, bias=False), kind(2, layer.out_features, bias=False)

    weight, bias = property(lambda self: self.base_layer.weight), property(lambda self: self.base_layer.bias)

    def forward(self, x):
        return self.base_layer(x) + self.up(self.down(x))


def adapt(net):
    """Every convolution and linear layer; returns what takes the adapters away."""
    put = []
    for module in list(net.modules()):
        for name, layer in list(module._modules.items()):
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                module._modules[name] = Adapted(layer)
                put.append((module, name, layer))
    return lambda: [module._modules.__setitem__(name, layer) for module, name, layer in put]


def wrap(module, before=lambda: None, behind=lambda: None):
    """As accelerate and diffusers hook a module: what is its forward now is kept, and called by another."""
    kept = module.forward

    def forward(*args, **kwargs):
        before()
        made = kept(*args, **kwargs)
        behind()
        return made

    module.forward = forward
    return lambda: setattr(module, "forward", kept)


def offload(net):
    """As accelerate's sequential offload: weights are there while their layer is called, and on meta otherwise."""
    backs = []
    for module in net.modules():
        if own := dict(module._parameters):
            def fetch(module=module, own=own):
                module._parameters.update(own)

            def drop(module=module, own=own):
                module._parameters.update({name: None if one is None else nn.Parameter(one.to("meta"), requires_grad=False) for name, one in own.items()})

            backs += [wrap(module, fetch, drop), fetch]
            drop()
    return lambda: [back() for back in backs]


def cast(net, storage, compute):
    """As diffusers' layerwise casting: the weights of each layer are in another type while it is not called."""
    backs = []
    for module in net.modules():
        if module._parameters and not isinstance(module, (nn.GroupNorm, nn.LayerNorm)):
            backs.append(wrap(module, lambda module=module: module.to(compute), lambda module=module: module.to(storage)))
            module.to(storage)
    return lambda: [back() for back in backs] + [net.to(compute)]


class Processor(nn.Module):
    """As IP-Adapter's: has weights of its own, and is one of the attention's modules."""

    def __init__(self, width):
        super().__init__()
        self.to_v_ip, self.plain = nn.Linear(width, width), AttnProcessor2_0()

    def __call__(self, attn, hidden_states, *args, **kwargs):
        return self.plain(attn, hidden_states, *args, **kwargs) + self.to_v_ip(hidden_states)
