"""@OP@ in NumPy, in fp64: a function to start from, as a row of noisefloor's.

noisefloor sweep --device host --plugin @OP@_numpy.py --ops @OP@ --networks all

@TABLE@
"""

import math

import numpy as np

op, name, kind, arch = "@OP@", "my_numpy", "host", "host"


@FORMULA@


def can_run(problem):
    if problem.fields.get("noise") == "drawn":
        return "needs noise that is given"
    if op == "conv2d" and problem.stats:
        return "needs stats=0"


def launch(problem, t):
    values = {name: str(value) for name, value in problem.fields.items()} | {"dtype": problem.dtype}
    results = @OP@(values, {name: value.astype(np.float64) for name, value in t.inputs.items()})
    for output, result in zip(t.outputs.values(), results):
        output[...] = result
