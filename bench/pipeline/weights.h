// Where a network's weights come from: a checkpoint, or chance.
#pragma once

#include "bench/platform/platform.h"
#include "networks/network.h"

namespace noisefloor::pipeline {

using namespace networks;

class Weights {
 public:
  virtual ~Weights() = default;
  // Throws InvalidInput where they are not this network's.
  virtual void check(const Network& network) const = 0;
  // Writes a weight's values, in the graph's layout and dtype, to the platform's memory.
  virtual void fill(Platform& platform, const Value& weight, void* data) const = 0;
  // All weights are there: what was kept from one to the next may go.
  virtual void filled() const {}
};

// Normal numbers of fixed seeds, for timing and for verification: what a network computes with them means nothing, but
// every weight counts. A weight is the same numbers whatever the network's dtype and batch, up to rounding. Products
// keep the variance of their inputs (deviation 1 / sqrt(fan-in)), norms scale by about 1, and nothing is zero: ADM's
// and EDM's own initial values are zero in every block's last convolution, which would hide what stands before it.
class RandomWeights final : public Weights {
 public:
  void check(const Network&) const override {}
  void fill(Platform& platform, const Value& weight, void* data) const override;

 private:
  void fill_sum(Platform& platform, const Value& weight, void* data) const;
};

}  // namespace noisefloor::pipeline
