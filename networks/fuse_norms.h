// GroupNorm in front of a convolution, done by the convolution itself while its input lies in shared memory: the node
// of the norm then makes coefficients per image and channel alone, where it can from statistics that the convolution
// before it leaves, and the normed tensor is never written.
#pragma once

#include "networks/network.h"

namespace noisefloor::networks {

// Which norms are fused: those that are less work so, measured at batch 32 (docs/experiments/convolution, "the norm in
// front").
struct FusedNorms {
  // Of the normed tensor. Below, two short launches were no faster than one.
  std::int64_t least_bytes = std::int64_t{16} << 20;
  // Of the convolution. Each tile of so many channels norms its halos anew.
  std::int64_t most_outputs = 192;
};

// Of groupnorms whose output only convolutions read that ptx_sm90a_halo takes: other rungs would norm an input once a
// tap, so it is for GPUs that have that one. The same numbers but for one rounding less, of nothing else.
void fuse_norms(Network& network, const FusedNorms& which = {});

}  // namespace noisefloor::networks
