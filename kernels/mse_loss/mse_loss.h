// mse_loss: the loss of a denoising network and its gradient, in one pass:
//
//   loss = mean over all elements of w_i (y - target)^2
//   dy   = scale * 2 w_i (y - target) / (batch * elements)
//
// weight=none: w_i = 1, for a prediction of noise, x0 or v (Ho et al. 2020; Salimans and Ho 2022). weight=edm: that of
// image i's noise level, (sigma_i^2 + sigma_data^2) / (sigma_i sigma_data)^2 (Karras et al. 2022, table 1).
#pragma once

#include <cstdint>

#include "kernels/core/definition.h"
#include "kernels/core/philox.h"  // NOISEFLOOR_HD
#include "kernels/device/limits.h"

namespace noisefloor::mse_loss {

enum class Weight { none, edm };

struct Problem {
  std::int64_t batch = 1;     // images
  std::int64_t elements = 1;  // of each
  Weight weight = Weight::none;
  double sigma_data = 0.5;
  double scale = 1;  // of dy alone: gradients in fp16 are small

  std::int64_t total() const { return batch * elements; }
};

struct Tensors {
  const void* y = nullptr;       // T [batch, elements]
  const void* target = nullptr;  // T [batch, elements]
  const float* sigma = nullptr;  // [batch], weight=edm
  float* loss = nullptr;         // [1]
  void* dy = nullptr;            // T [batch, elements]
};

using Definition = OpDefinition<Problem, Tensors>;
extern const Definition definition;
Definition::Variants variants;  // variants.cpp; best last
Definition::Launcher launch_host, launch_naive, launch_tiled, launch_tensor_core_sm80, launch_ptx_sm90a;

inline std::int64_t partial_sums(const Problem& p) {
  return ordered_sums(p.total(), 2048);
}
std::size_t host_workspace_bytes(const Problem&, DType, const DeviceInfo&);

NOISEFLOOR_HD float weight_of(float sigma, float sigma_data) {
  const float product = sigma * sigma_data;
  return (sigma * sigma + sigma_data * sigma_data) / (product * product);
}

}  // namespace noisefloor::mse_loss
