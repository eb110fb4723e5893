// What a network asks of each op where nothing is fused.
#pragma once

#include "networks/graph.h"

namespace noisefloor::networks {

// As count_problems, with every node taken apart: projections of one product are products, what a product, convolution
// or norm has before or behind it is a problem of elementwise or resample where those have it, attention takes separate
// tensors, and along frames short sequences. A convolution of one tap is a product, a blend a sum. Copies of rows, and
// back from channels-first, are not counted. What the builder computes once, or not at all, stays so, but in
// `original`.
std::vector<CountedProblem> count_unfused(const Graph& graph);

}  // namespace noisefloor::networks
