"""python -m noisefloor._stubs FILE: writes ops.pyi, for editors and type checkers."""

import sys
from pathlib import Path

from noisefloor._signatures import CATALOGUE, signature

HEAD = '''"""A function for every op of the catalogue. Written by noisefloor._stubs; do not edit."""

from collections.abc import Sequence
from typing import Any, Literal

Array = Any  # whatever has DLPack or the buffer protocol
'''


def text():
    made = [HEAD]
    for op in sorted(CATALOGUE):
        doc = "\n".join("    " + line if line else "" for line in signature(op).doc().splitlines())
        made.append(f'def {op}({signature(op).parameters(typed=True)}) -> Any:\n    """{doc.lstrip()}\n    """\n')
    return "\n".join(made)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(text())
