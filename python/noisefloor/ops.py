"""One function for each op of the catalogue. `help(noisefloor.ops.gemm)` says what it takes."""

from noisefloor._docstrings import docstring
from noisefloor._signatures import CATALOGUE, COMMON, bound, signature

__all__ = sorted(CATALOGUE)


def __getattr__(name):
    if name not in CATALOGUE:
        raise AttributeError(f"noisefloor has no op '{name}'; it has {', '.join(__all__)}")
    made = signature(name)
    arguments = [one.name for one in made.parameters()]
    doc = f"{name}({made.text(typed=False)})\n--\n\n{docstring(made, COMMON)}"  # inspect reads the first line
    function = globals()[name] = bound(name).function(arguments, len(made.first), len(made.inputs), doc)
    return function


def __dir__():
    return __all__
