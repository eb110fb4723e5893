"""groupnorm in PyTorch: a function to start from, as a row of noisefloor's.

noisefloor sweep --plugin groupnorm_torch.py --ops groupnorm --networks sd15-b2

@TABLE@
"""

import torch
import torch.nn.functional as F

op, name, kind = "groupnorm", "my_torch", "baseline"


def can_run(problem):
    if problem.fusion == "silu+ss" or problem.stats or problem.coefficients or problem.slab_stats != "none":
        return "needs fusion none or silu, stats=0, coefficients=0 and slab_stats=none"


@torch.no_grad()
def launch(problem, t):
    y = F.group_norm(t.x.transpose(1, 2), problem.groups, t.gamma, t.beta, problem.eps).transpose(1, 2)
    t.y.copy_(F.silu(y) if problem.fusion == "silu" else y)
