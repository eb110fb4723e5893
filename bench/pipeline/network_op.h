// Whole networks as an op of the sweep: `name=adm64,batch=32` takes images, noise levels and labels, and gives what one
// denoising call gives. There are no variants of it; its candidates run the network's nodes under a plan.
#pragma once

#include <vector>

#include "bench/measure/candidate.h"
#include "bench/measure/fixture.h"
#include "networks/network.h"

namespace noisefloor::pipeline {

// Its cost is the sum of the nodes' FLOPs; of bytes, what no fusion saves: weights, inputs and output once.
const Op& network_op();
Network build_network(const AnyProblem& problem, DType dtype);

// plan_own and plan_fastest (kind network), and plan_baseline: the plans of these names, with random weights. On the
// host only plan_own, which is the host variants.
std::span<const Assembly> network_assemblies();

// The output of the fixture's problem on its inputs, with the same weights: in fp32, by the naive variants of the
// fixture's platform. Throws OutOfMemory, DeviceError.
std::vector<double> reference_output(Fixture& fixture);

}  // namespace noisefloor::pipeline
