"""python3 -m baselines.pytorch, from the root of the repository."""

import sys

from baselines.pytorch.cli import main

sys.exit(main(sys.argv[1:]))
