"""Handles that keep the weights of one variant rearranged, so that calls need not do it again."""

from noisefloor import _signatures, ops


class Prepared:
    """An op that keeps its weights: `handle(x)` takes the tensors whose shapes `prepare` got, in the op's order or by name; also `out` and `stream`.

    It has an `op`, a `variant` and a `dtype`. `memory` has the rearranged weights, and is None if the variant rearranges nothing. It serves
    any number and size of images that the variant can run, on any stream and thread.
    """

    def __init__(self, op, given, made, function):
        self.op, (self.variant, self.dtype, self.memory), self._function = op, made, function
        self.open = tuple(name for name in _signatures.signature(op).names if isinstance(given.get(name), (tuple, list)))
        self._given = given | {"variant": self.variant, "dtype": self.dtype, "prepared": self.memory}
        for name in (*self.open, "stream", "plan", *(["prepared"] if self.memory is None else [])):
            self._given.pop(name, None)

    def __call__(self, *tensors, **named):
        if named or len(tensors) != len(self.open):
            had = [*self.open, "one more"][: len(tensors)] + [name for name in named if name not in ("out", "stream")]
            if sorted(had) != sorted(self.open):
                raise TypeError(f"{self.op}: this handle takes ({', '.join(self.open)}), not ({', '.join(had)}); what else it has, prepare was given")
        if len(tensors) == 1:  # of nearly every handle
            named[self.open[0]] = tensors[0]
        else:
            named.update(zip(self.open, tensors))
        return self._function(**self._given, **named)

    def __repr__(self):
        size = "nothing packed" if self.memory is None else f"{self.memory.nbytes} bytes packed"
        return f"<noisefloor.prepare({self.op!r}): variant {self.variant}, {self.dtype}, {size}, takes {', '.join(self.open)}>"


def prepare(op, /, *tensors, **arguments):
    """Returns a handle to an op and its weights: `conv = noisefloor.prepare("conv2d", x.shape, w, bias); y = conv(x)`.

    It takes what the op's function takes, except `out`. A shape (a tuple or list) stands for a tensor that each call brings. Tensors are
    weights: the handle keeps them, and does not see later changes to them.
    """
    return make(op, tensors, arguments, getattr(ops, op, None))


def make(op, tensors, arguments, function):
    signature = _signatures.signature(op)
    given = signature.bind(tensors, arguments)
    for name in ("out", "prepared"):
        if given.get(name) is not None:
            raise TypeError(f"{op}: prepare takes no '{name}'; give it to the calls of the handle")
    groups = (tuple(map(given.get, names)) for names in (signature.names, signature.keywords))
    return Prepared(op, given, _signatures.bound(op).prepare(*groups, *map(given.get, ("variant", "stream", "dtype", "plan"))), function)
