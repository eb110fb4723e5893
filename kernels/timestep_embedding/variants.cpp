// The variants of timestep_embedding. What each variant does better than the one below is in README.md.
#include <algorithm>

#include "kernels/timestep_embedding/timestep_embedding.h"

namespace noisefloor::timestep_embedding {
namespace {

// The layers read whole vectors; the embedding alone is written number by number.
Support for_tiled(const Problem& p, DType dtype) {
  if (!p.perceptron()) return supported();
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  if (p.half() * size % 16 != 0) return unsupported("needs half the channels to be a multiple of 16 bytes");
  if (p.hidden * size % 16 != 0) return unsupported("needs hidden to be a multiple of 16 bytes");
  return supported();
}

Support for_tensor_core_sm80(const Problem& p, DType dtype) {
  if (!p.perceptron()) return unsupported("needs hidden: without the perceptron there is no product");
  if (dtype == DType::fp32) return unsupported("needs bf16 or fp16");
  return for_tiled(p, dtype);
}

Support for_ptx_sm90a(const Problem& p, DType dtype) {
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  if (p.perceptron() && 8 * std::max(p.channels, p.hidden) * (size + 4) > kMaxPtxSharedBytes)
    return unsupported("needs 8 rows of weights and of fp32 inputs to fit 192 KiB");
  return for_tiled(p, dtype);
}

constexpr Definition::Variant kVariants[] = {NOISEFLOOR_HOST(any_problem, layers_workspace_bytes),
                                             NOISEFLOOR_NAIVE(any_problem, layers_workspace_bytes),
                                             NOISEFLOOR_TILED(for_tiled, layers_workspace_bytes),
                                             NOISEFLOOR_TENSOR_CORE_SM80(for_tensor_core_sm80, layers_workspace_bytes),
                                             NOISEFLOOR_PTX_SM90A(for_ptx_sm90a, layers_workspace_bytes)};

}  // namespace

std::size_t layers_workspace_bytes(const Problem& p, DType, const DeviceInfo&) {
  return p.perceptron() ? static_cast<std::size_t>(p.batch * (p.channels + p.hidden)) * sizeof(float) : 0;
}

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::timestep_embedding
