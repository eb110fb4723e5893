// Whole networks as a workload of the sweep: `name=adm64,batch=32` takes images, noise levels and labels, and gives
// what one denoising call gives; `height=96,width=64` makes them of another size. Files and commands call it the op
// `network`.
#pragma once

#include <vector>

#include "bench/measure/suite.h"
#include "networks/network.h"

namespace noisefloor::pipeline {

using namespace networks;

// Its cost is the sum of the nodes' FLOPs; of bytes, what no fusion saves: weights, inputs and output once.
const Workload& network_workload();
Network build_network(const AnyProblem& problem, DType dtype, bool fold_skips = false);

// The implementations plan_own and plan_fastest (kind network), and plan_baseline: the plans of these names over the
// implementations in `nodes`, with random weights; on the host only plan_own, which is the host variants. They are held
// to the same network in fp32 by the tiled variants of the platform. `nodes` must outlive the entry.
SuiteEntry network_entry(const Suite& nodes);

}  // namespace noisefloor::pipeline
