"""Plans: which variant each problem runs, from the plan.csv that `noisefloor roofline` writes into a run folder."""

import contextlib
import contextvars
import csv
import functools
import json
import os
import warnings
from pathlib import Path

from noisefloor import _core

COLUMNS = ("op", "dtype", "problem", "variant")
used = contextvars.ContextVar("noisefloor.use_plan", default=None)  # calls without plan= ask it


class Plan(_core.Plan):
    """A plan.csv, for the device that env.json beside it names: `plan.file`, `plan.device` ("" if unknown). It has `len(plan)` problems."""

    def __init__(self, file):
        file = Path(file)
        try:
            with open(file, newline="", encoding="utf-8") as lines:
                rows = csv.DictReader(lines)
                lacking = [name for name in COLUMNS if name not in (rows.fieldnames or ())]
                found = [] if lacking else [tuple(row[name] or "" for name in COLUMNS) for row in rows]
        except (UnicodeDecodeError, csv.Error) as error:
            raise ValueError(f"{file} is not a plan: {error}") from error
        if lacking:
            raise ValueError(f"{file} is not a plan: it has no column {', '.join(lacking)}")
        super().__init__(str(file), device_of(file), found)

    def __repr__(self):
        return f"<noisefloor.Plan: {len(self)} problems on {self.device or 'an unknown device'}>"


def device_of(file):
    environment = file.parent / "env.json"
    if not environment.exists():
        warnings.warn(f"plan {file}: no env.json beside it says which device it is of; taken for one of whatever runs it", stacklevel=4)
        return ""
    try:
        device = json.loads(environment.read_text(encoding="utf-8"))["device"]
        if not isinstance(device, str):
            raise TypeError(f"its device is no text but {device!r}")
        return device
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"plan {file}: which device it is of cannot be read in {environment}: {error!r}") from error


@functools.lru_cache(maxsize=16)
def _read(file, changed, size):
    return Plan(file)


def plan_of(plan):
    """A Plan as it is; of a file, which is read again when it changed."""
    if isinstance(plan, _core.Plan):
        return plan
    if not isinstance(plan, (str, os.PathLike)):
        raise TypeError(f"plan must be a noisefloor.Plan or the file of one, not a {type(plan).__name__}")
    status = os.stat(plan)
    return _read(os.path.abspath(plan), status.st_mtime_ns, status.st_size)


@contextlib.contextmanager
def use_plan(plan):
    """Sets the plan of every call inside the `with`, in this thread and asyncio task, also of noisefloor.torch. None sets no plan.

    A call's plan= and variant= override it."""
    plan = None if plan is None else plan_of(plan)
    before = used.set(plan)
    try:
        yield plan
    finally:
        used.reset(before)
