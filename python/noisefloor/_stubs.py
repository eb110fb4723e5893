"""python -m noisefloor._stubs FOLDER: writes ops.pyi and torch.pyi there, for editors and type checkers."""

import sys
from pathlib import Path

from noisefloor._docstrings import docstring
from noisefloor._signatures import CATALOGUE, COMMON, COMMON_OF_TORCH, signature

OPS = '''"""A function for every op of the catalogue. Written by noisefloor._stubs; do not edit."""

from collections.abc import Sequence
from typing import Any, Literal

Array = Any  # whatever has DLPack or the buffer protocol
'''
TORCH = '''"""The ops as operators of PyTorch. Written by noisefloor._stubs; do not edit."""

from typing import Any, Literal

from torch import Tensor as Array

from noisefloor._patch import patch as patch
from noisefloor._prepared import Prepared

def prepare(op: str, /, *tensors: Any, **arguments: Any) -> Prepared: ...
'''


def text(head, common):
    made = [head]
    for op in sorted(CATALOGUE):
        doc = "\n".join("    " + line if line else "" for line in docstring(signature(op), common).splitlines())
        made.append(f'def {op}({signature(op).text(common)}) -> Any:\n    """{doc.lstrip()}\n    """\n')
    return "\n".join(made)


if __name__ == "__main__":
    for name, head, common in (("ops", OPS, COMMON), ("torch", TORCH, COMMON_OF_TORCH)):
        (Path(sys.argv[1]) / f"{name}.pyi").write_text(text(head, common))
