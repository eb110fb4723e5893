// An image that is halved behind a norm, in one node: groupnorm's `down_w` writes the average of what it norms and that
// of its input, in the place of a norm and two of resample's averages.
#pragma once

#include "networks/fold_skips.h"

namespace noisefloor::networks {

// The same numbers. Of norms whose output an average alone reads, and whose input another one; where `runs` has the new
// node.
void halve_in_norms(Network& network, const Runs& runs = runs_on_sm90a);

}  // namespace noisefloor::networks
