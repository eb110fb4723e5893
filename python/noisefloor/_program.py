"""The command line that a wheel has beside the module: bin/noisefloor, and the problems and weights that it finds above itself."""

import os
import sys
from pathlib import Path


def main():
    program = Path(__file__).resolve().parent / "bin" / "noisefloor"
    # The python3 that it starts, for PyTorch's rows and captures, is the one that has this package.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    try:
        os.execv(program, [str(program), *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"noisefloor: this package has no command line that runs here: {program}: {error.strerror}")
