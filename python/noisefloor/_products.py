"""Products that share an input, of layers whose weights `patch` laid side by side: one launch in the place of two or three."""

import weakref

import torch

from noisefloor import _signatures

_product = _signatures.bound("gemm").operation(["a", "b", "fields"], True)


def lay(layers):
    """The layers' weights one below the other in one new storage, of which the parameters are views; returns what parts them again."""
    weights = [layer.weight for layer in layers]
    kept = list(map(weakref.ref, weights))  # an offload may drop them

    def part():
        for weight in [one() for one in kept]:
            if weight is not None:
                with torch.inference_mode(weight.is_inference()):
                    weight.data = weight.detach().clone()

    with torch.inference_mode(weights[0].is_inference()):
        storage = torch.cat([weight.detach() for weight in weights])
    for weight, rows in zip(weights, storage.split([len(weight) for weight in weights])):
        with torch.inference_mode(weight.is_inference()):
            weight.data = rows
    return part


def are_side_by_side(weights):
    """Looked at in each call: whatever gives a parameter other memory parts them."""
    first = weights[0]
    step, storage = first.numel() * first.element_size(), first.untyped_storage().data_ptr()
    return all([one.shape == first.shape and one.is_contiguous() and one.data_ptr() == first.data_ptr() + i * step and
                one.untyped_storage().data_ptr() == storage for i, one in enumerate(weights)])


def products(a, weights):
    n, k = weights[0].shape
    if are_side_by_side(weights):
        return _product(a, weights[0].as_strided((len(weights) * n, k), (k, 1)), f"bias=0,part_columns={n}")[0]
    return torch.stack([_product(a, weight, "bias=0")[0] for weight in weights])


def fake(a, weights):
    return torch.empty((len(weights), a.shape[0], weights[0].shape[0]), dtype=a.dtype, device=a.device)


def fit(layers):
    """Whether the products of these can be one: of one shape, without bias."""
    if not all(isinstance(layer, torch.nn.Linear) and layer.bias is None for layer in layers):
        return False
    weights = [layer.weight for layer in layers]
    kinds = {(one.shape, one.dtype, one.device, one.requires_grad, one.is_inference()) for one in weights}
    step = 8  # columns that gemm's part_columns counts in
    return len(kinds) == 1 and len(set(map(id, weights))) == len(weights) and len(weights[0]) % step == 0
