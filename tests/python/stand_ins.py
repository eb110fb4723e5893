"""What peft and accelerate do to a network, in a few lines each: for tests of patch where these are not installed."""

from torch import nn


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
