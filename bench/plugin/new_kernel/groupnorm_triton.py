"""groupnorm in Triton: a kernel to start from, as a row of noisefloor's. One program normalises one group in two passes.

noisefloor sweep --plugin groupnorm_triton.py --ops groupnorm --networks sd15-b2

@TABLE@
"""

import torch  # noqa: F401 - Triton launches on its current stream
import triton
import triton.language as tl

op, name, kind, arch = "groupnorm", "my_triton", "tiled", "sm_80"


@triton.jit
def groupnorm(x, gamma, beta, y, hw, channels, eps, GROUP: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr, SILU: tl.constexpr):
    first = tl.program_id(0) * GROUP
    image = tl.program_id(1).to(tl.int64) * hw * channels + first
    lanes, steps = tl.arange(0, PADDED)[None, :], tl.arange(0, ROWS)[:, None]
    sums, squares = tl.zeros((ROWS, PADDED), tl.float32), tl.zeros((ROWS, PADDED), tl.float32)
    for row in range(0, hw, ROWS):
        inside = (row + steps < hw) & (lanes < GROUP)
        sums += tl.load(x + image + (row + steps) * channels + lanes, inside, 0.0).to(tl.float32)
    mean = tl.sum(sums) / (hw * GROUP)
    for row in range(0, hw, ROWS):
        inside = (row + steps < hw) & (lanes < GROUP)
        off = tl.load(x + image + (row + steps) * channels + lanes, inside, 0.0).to(tl.float32) - mean
        squares += tl.where(inside, off * off, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(squares) / (hw * GROUP) + eps)
    scale = tl.load(gamma + first + lanes, lanes < GROUP, 0.0).to(tl.float32)
    shift = tl.load(beta + first + lanes, lanes < GROUP, 0.0).to(tl.float32)
    for row in range(0, hw, ROWS):
        inside = (row + steps < hw) & (lanes < GROUP)
        place = image + (row + steps) * channels + lanes
        value = (tl.load(x + place, inside, 0.0).to(tl.float32) - mean) * rstd * scale + shift
        if SILU:
            value = value / (1 + tl.exp(-value))
        tl.store(y + place, value.to(y.dtype.element_ty), inside)


def can_run(problem):
    if problem.fusion == "silu+ss" or problem.stats or problem.coefficients or problem.slab_stats != "none":
        return "needs fusion none or silu, stats=0, coefficients=0 and slab_stats=none"
    if problem.skip_channels or problem.down_w:
        return "needs skip_channels=0 and down_w=0"


def launch(problem, t):
    group = problem.channels // problem.groups
    padded = triton.next_power_of_2(group)
    groupnorm[(problem.groups, problem.n)](t.x, t.gamma, t.beta, t.y, problem.hw, problem.channels, problem.eps, GROUP=group, PADDED=padded,
                                           ROWS=max(1, 2048 // padded), SILU=problem.fusion == "silu", num_warps=4)  # fmt: skip
