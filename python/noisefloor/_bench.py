"""noisefloor.bench: measures a Python function as a row beside our variants and the libraries."""

import csv
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

from noisefloor import _core, _signatures

FILE = """import pickle, sys

sys.path[:0] = {path!r}
op, name = {op!r}, {name!r}
with open({pickled!r}, "rb") as file:
    launch{can_run} = pickle.load(file)
"""


def program():
    """Of this package, of the build that it is in, or on PATH."""
    here = Path(__file__).resolve().parent
    for found in (here / "bin" / "noisefloor", here.parent.parent / "bin" / "noisefloor", shutil.which("noisefloor")):
        if found is not None and Path(found).is_file():
            return str(found)
    raise RuntimeError("the program noisefloor is not here: neither in this package nor on PATH")


def pickled(functions):
    """By value where cloudpickle is here, as notebooks need it; else by module and name."""
    try:
        import cloudpickle

        return cloudpickle.dumps(functions)
    except ImportError:
        if any(getattr(one, "__module__", "__main__") == "__main__" for one in functions):
            raise ValueError("a function of __main__ or a notebook needs the package cloudpickle to reach another process; "
                             "or put it into a file, and give its name") from None  # fmt: skip
        return pickle.dumps(functions)


def asked(*words):
    result = subprocess.run([program(), *words], env={**os.environ, "NOISEFLOOR_PYTHON": sys.executable}, capture_output=True, text=True)
    result.said = (result.stderr.strip().splitlines() or ["noisefloor failed"])[-1]
    return result


def rows_of(file, op):
    result = asked("list", "variants", "--ops", op, "--plugin", str(file), "--format", "json")
    if result.returncode != 0:
        raise RuntimeError(result.said)
    return [line["variant"] for line in map(json.loads, result.stdout.splitlines()) if "plugin" in line]


def require_texts(**arguments):
    for argument, value in arguments.items():
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{argument} must be text, not a {type(value).__name__}")


def bench(op, plugin, *, problems=None, problem=None, dtypes="bf16", name="mine", can_run=None, variants=None, device=None, out=None, fresh=False,
          quiet=False):  # fmt: skip
    """Measures `plugin` as a row of `op` in its own process, with our variants and the libraries beside it.

    plugin: launch(problem, tensors), or the name of a .py or .so file. problems: networks or sets of problems, comma-separated. Or give
    problem: one problem's text. variants: the others to measure, "" for none; by default all that the device runs. out: a run folder to
    keep. fresh: begin it again. Returns the rows of sweep.csv as dictionaries. docs/plugins.md says what the function gets.
    """
    require_texts(op=op, problems=problems, problem=problem, dtypes=dtypes, name=name, variants=variants)
    _signatures.known(op)
    if (problems is None) == (problem is None):
        raise ValueError('give problems="sd15-b2", or problem="n=2,..."')
    with tempfile.TemporaryDirectory(prefix="noisefloor-") as folder:
        file = plugin
        if callable(plugin):
            functions = (plugin,) if can_run is None else (plugin, can_run)
            Path(folder, "functions").write_bytes(pickled(functions))
            file = Path(folder, "notebook.py")
            file.write_text(FILE.format(path=[entry or os.getcwd() for entry in sys.path], op=op, name=name, pickled=str(Path(folder, "functions")),
                                        can_run="," if can_run is None else ", can_run"))  # fmt: skip
        elif not isinstance(plugin, (str, os.PathLike)):
            raise TypeError(f"plugin must be a function or a file's name, not a {type(plugin).__name__}")
        run = Path(out or Path(folder, "run"))
        words = ["sweep", "--plugin", str(file), "--ops", op, "--dtypes", dtypes, "--out", str(run)]
        if problem is not None:
            fields = _core.problem(op, problem)[1]
            Path(folder, "problems").mkdir()
            with open(Path(folder, "problems", f"{op}.csv"), "w", newline="") as table:
                csv.writer(table).writerows([["network", *fields, "count"], ["given", *fields.values(), 1]])
            words += ["--problems", str(Path(folder, "problems"))]
        words += ["--networks", "given" if problem is not None else problems]
        if variants is not None:
            mine = [name] if callable(plugin) else rows_of(file, op)
            if not mine:
                raise ValueError(f"{file} has no row of {op}")
            words += ["--variants", ",".join(filter(None, [variants, *mine]))]
        words += ["--device", str(device)] if device is not None else []
        words += ["--fresh"] if fresh else []
        result = asked(*words)
        if result.returncode not in (0, 1) or not (run / "sweep.csv").is_file():
            raise RuntimeError(result.said)
        for line in result.stderr.splitlines():
            if line.startswith("--plugin: "):  # why there is no row of it
                warnings.warn(line, stacklevel=2)
        if not quiet:
            print(result.stdout.partition("\n\n")[0])
        with open(run / "sweep.csv", newline="") as table:
            return list(csv.DictReader(table))
