// grad_norm: the Euclidean norm of all gradients, and what they are multiplied by so that it is at most `clip` (Pascanu
// et al., "On the difficulty of training recurrent neural networks", 2013):
//
//   norm = sqrt(sum of g^2),  scale = clip / norm where clip > 0 and norm > clip, else 1
//
// A NaN or an infinity among the gradients makes `norm` NaN or infinite, and a NaN makes `scale` NaN, so that whoever
// trains sees it. Sums are in fp32: so does a norm above 1.8e19.
#pragma once

#include <cstdint>

#include "kernels/core/definition.h"
#include "kernels/core/philox.h"  // NOISEFLOOR_HD
#include "kernels/device/limits.h"

namespace noisefloor::grad_norm {

struct Problem {
  std::int64_t elements = 1;
  double clip = 0;  // 0: none
};

// The row's dtype is nothing's: gradients of parameters are fp32.
struct Tensors {
  const float* g = nullptr;  // [elements]
  float* norm = nullptr;     // [1]
  float* scale = nullptr;    // [1]
};

using Definition = OpDefinition<Problem, Tensors>;
extern const Definition definition;
Definition::Variants variants;  // variants.cpp; best last
Definition::Launcher launch_host, launch_naive, launch_tiled, launch_tensor_core_sm80, launch_ptx_sm90a;

inline std::int64_t partial_sums(const Problem& p) {
  return ordered_sums(p.elements, 4096);
}
std::size_t host_workspace_bytes(const Problem&, DType, const DeviceInfo&);

NOISEFLOOR_HD float scale_of(float norm, float clip) {
  if (norm != norm) return norm;
  return clip > 0 && norm > clip ? clip / norm : 1.0f;
}

}  // namespace noisefloor::grad_norm
