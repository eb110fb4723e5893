// A block's skip connection without tensors of its own: its 1x1 is summed by the convolution that added it as a
// residual (conv2d's `side`), a concatenation that only such sums and norms read is read in its two parts, never
// written, and an upsampled residual is repeated by the convolution that adds it (`residual_upsample`).
#pragma once

#include <functional>

#include "networks/network.h"

namespace noisefloor::networks {

// Whether a node of this op and problem can be run.
using Runs = std::function<bool(const Op&, const AnyProblem&, DType)>;
// By a rung of ours in PTX for sm_90a: whether this build has it is for others to ask.
bool runs_on_sm90a(const Op& op, const AnyProblem& problem, DType dtype);

// The same numbers but for roundings that fall away: the 1x1's output, and of its bias, which is added to that of the
// convolution before both are rounded. The 1x1 may be a product of rows. A node is folded where `runs` has the new one.
void fold_skips(Network& network, const Runs& runs = runs_on_sm90a);

}  // namespace noisefloor::networks
