"""Handles that keep the weights of one variant rearranged, so that calls need not do it again."""

from noisefloor import _signatures


class Prepared:
    """An op that keeps its weights: `handle(x)` takes the tensors whose shapes `prepare` got, in the op's order or by name.

    It has an `op`, a `variant` and a `dtype`. `memory` has the rearranged weights, and is None if the variant rearranges nothing. It serves
    any number and size of images that the variant can run, on any stream and thread.
    """

    def __init__(self, op, tensors, fields, made, call):
        self.op, (self.variant, self.dtype, self.memory) = op, made
        self._names, self._fields, self._call = _signatures.signature(op).names, fields, call
        self._tensors = [None if isinstance(tensor, (tuple, list)) else tensor for tensor in tensors]
        self._places = tuple(place for place, tensor in enumerate(tensors) if isinstance(tensor, (tuple, list)))
        self.open = tuple(self._names[place] for place in self._places)

    def __call__(self, *tensors, out=None, stream=None, **named):
        if named or len(tensors) != len(self.open):
            tensors = self._in_order(tensors, named)
        merged = self._tensors.copy()
        for place, tensor in zip(self._places, tensors):
            merged[place] = tensor
        return self._call(tuple(merged), self._fields, out, self.variant, stream, self.dtype, None, self.memory)

    def _in_order(self, tensors, named):
        given = dict(zip(self.open, tensors))
        if len(tensors) > len(self.open) or named.keys() & given.keys() or (named | given).keys() != set(self.open):
            had = [*list(given)[: len(tensors)], *named] + ["one more"] * (len(tensors) > len(self.open))
            raise TypeError(f"{self.op}: this handle takes ({', '.join(self.open)}), not ({', '.join(had)}); what else it has, prepare was given")
        given.update(named)
        return [given[name] for name in self.open]

    def __repr__(self):
        size = "nothing packed" if self.memory is None else f"{self.memory.nbytes} bytes packed"
        return f"<noisefloor.prepare({self.op!r}): variant {self.variant}, {self.dtype}, {size}, takes {', '.join(self.open)}>"


def prepare(op, /, *tensors, **arguments):
    """Returns a handle to an op and its weights: `conv = noisefloor.prepare("conv2d", x.shape, w, bias); y = conv(x)`.

    It takes what the op's function takes, except `out`. A shape (a tuple or list) stands for a tensor that each call brings. Tensors are
    weights: the handle keeps them, and does not see later changes to them.
    """
    return make(op, tensors, arguments, _signatures.bound(op).call)


def make(op, tensors, arguments, call):
    tensors, fields, out, variant, stream, dtype, plan = _signatures.signature(op).bind(tensors, arguments)
    if out is not None:
        raise TypeError(f"{op}: prepare takes no 'out'; give it to the calls of the handle")
    return Prepared(op, tensors, fields, _signatures.bound(op).prepare(tensors, fields, variant, stream, dtype, plan), call)
