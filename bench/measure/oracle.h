// What an implementation is held to.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bench/measure/implementation.h"

namespace noisefloor {

class Fixture;

// Exact values of an output: of all its elements, or of a sample.
struct Expectation {
  std::size_t tensor;
  bool complete;                       // elements are all of the tensor's
  std::vector<std::int64_t> elements;  // ascending
  std::vector<double> values;
  double rms = 0;  // of the values
};

class Oracle {
 public:
  virtual ~Oracle() = default;
  // What the fixture's outputs must be; of every element where `flops` of work allow that. Throws OutOfMemory,
  // DeviceError.
  virtual std::vector<Expectation> expect(Fixture& fixture, double flops) const = 0;
  // What may stand in for the oracle in the elements that it leaves out, once it agrees with it in the others: the
  // first that does. `quick`: those that are faster than the naive one before it.
  virtual std::vector<const Implementation*> stand_ins(bool /*quick*/) const { return {}; }
};

// An op's host function; its stand-in is the naive variant, or a quick one: tiled, then those of tensor cores. `op`
// must outlive it.
std::unique_ptr<Oracle> oracle_of(const Op& op);

// The root mean square of the values, as Expectation::rms.
double root_mean_square(const std::vector<double>& values);

}  // namespace noisefloor
