"""One function for each op of the catalogue. `help(noisefloor.ops.gemm)` says what it takes."""

from noisefloor import _signatures

__all__ = sorted(_signatures.CATALOGUE)


def __getattr__(name):
    if name not in _signatures.CATALOGUE:
        raise AttributeError(f"noisefloor has no op '{name}'; it has {', '.join(__all__)}")
    function = globals()[name] = _signatures.make_function(name)
    return function


def __dir__():
    return __all__
