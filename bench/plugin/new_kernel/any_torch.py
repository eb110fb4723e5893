"""@OP@ in PyTorch: a function to start from, as a row of noisefloor's.

noisefloor sweep --plugin @OP@_torch.py --ops @OP@ --networks all

@TABLE@
"""

import math

import torch
import torch.nn.functional as F

op, name, kind = "@OP@", "my_torch", "baseline"
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # fp32 rows are held to fp32, and TF32 has 10 bits


@FORMULA@


def can_run(problem):
    if problem.fields.get("noise") == "drawn":
        return "needs noise that is given"
    if problem.fields.get("stats") == 1 or problem.fields.get("lse") == 1 or problem.fields.get("slab_stats", "none") != "none":
        return "needs no statistics (stats=0, lse=0, slab_stats=none)"


@torch.no_grad()
def launch(problem, t):
    for output, result in zip(t.outputs.values(), @OP@(problem, t)):
        output.copy_(result)
