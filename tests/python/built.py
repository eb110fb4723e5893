"""Imported first: finds the module of this build. A build without it (.venv had no nanobind or Python's headers) skips its tests."""

import os
import sys
from pathlib import Path

import pytest

FOLDER = os.environ.get("NOISEFLOOR_PYTHON_PACKAGE")
if not FOLDER:
    pytest.skip("this build has no Python module: nanobind or Python's headers were missing", allow_module_level=True)
sys.path[:0] = [FOLDER, str(Path(__file__).parent)]
