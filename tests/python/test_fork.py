"""noisefloor.ops: a child of fork has none of its parent's threads, and says so at once."""

import subprocess
import sys

import built
import pytest

SCRIPT = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import numpy
import noisefloor
x = numpy.ones((256, 256), numpy.float32)
before, how = sys.argv[2:]
if before == "op":
    noisefloor.ops.gemm(x, x, bias=False)
if before == "torch":
    import torch
    torch.ones(1 << 22).add_(1)
child = os.fork()
if child == 0:
    signal.alarm(60)  # where it hangs
    code = 1
    try:
        if how == "call":
            noisefloor.ops.gemm(x, x, bias=False)
        elif how == "prepare":
            noisefloor.prepare("conv2d", (1, 8, 8, 8), numpy.ones((8, 3, 3, 8), numpy.float32), bias=False)
        elif how == "grandchild":
            if (one := os.fork()) == 0:
                noisefloor.ops.gemm(x, x, bias=False)
            raise RuntimeError("forked" if os.waitpid(one, 0)[1] else "")
        code = 2
    except RuntimeError as error:
        code = 3 if "forked" in str(error) else 4
    os._exit(code)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
if before == "op":
    noisefloor.ops.gemm(x, x, bias=False)  # the parent goes on
print({2: "computed", 3: "refused"}.get(code, code))
"""


@pytest.mark.parametrize("before, how, wanted", [("op", "call", "refused"), ("op", "prepare", "refused"), ("op", "grandchild", "refused"),
                                                 ("nothing", "call", "computed"), ("torch", "call", "refused")])  # fmt: skip
def test_an_op_in_a_forked_child(before, how, wanted):
    if before == "torch":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    done = subprocess.run([sys.executable, "-c", SCRIPT, built.FOLDER, before, how], capture_output=True, text=True, timeout=200)
    assert done.stdout.strip() == wanted, done.stderr
