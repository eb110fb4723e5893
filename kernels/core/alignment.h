// How tensors that share an allocation lie in it.
#pragma once

#include <cstddef>

namespace noisefloor {

inline constexpr std::size_t kAllocationAlignment = 256;  // what cudaMalloc promises, so what launchers may count on

// `bytes` rounded up to a place where the next tensor may begin.
constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + kAllocationAlignment - 1) / kAllocationAlignment * kAllocationAlignment;
}

}  // namespace noisefloor
