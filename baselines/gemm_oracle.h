// Some elements of a gemm's D in double, to hold a library's algorithm to the op's tolerance before it may win.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/core/device.h"
#include "kernels/core/status.h"
#include "kernels/gemm/gemm.h"

namespace noisefloor::gemm {

class SampledOracle {
 public:
  SampledOracle(const Problem& problem, DType dtype)
      : problem_(problem), dtype_(dtype), tolerance_(definition.tolerance(problem, dtype)) {}

  // Copies the inputs to the host and computes the elements: every one where that is cheap, else a sample. Blocks.
  Status open(std::span<void* const> pointers, Stream stream);
  // Whether D on the device, [m, n], is within the tolerance there. Blocks.
  Status check(const void* d, Stream stream, bool& accurate) const;

 private:
  Problem problem_;
  DType dtype_;
  Tolerance tolerance_;
  std::vector<std::int64_t> elements_;  // ascending
  std::vector<double> expected_;
  double rms_ = 0;
};

}  // namespace noisefloor::gemm
