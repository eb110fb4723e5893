// The ladder of timestep_embedding. What each rung does better than the one below is in README.md.
#include <algorithm>

#include "kernels/timestep_embedding/launchers.h"

namespace noisefloor::timestep_embedding {
namespace {

Support for_tiled(const Problem& p, DType dtype) {
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

constexpr Definition::Variant kVariants[] = {
    {kHost, {launch_host, any_problem, layers_workspace_bytes}},
    {kNaive, {NOISEFLOOR_IF_CUDA(launch_naive), any_problem, layers_workspace_bytes}},
    {kTiled, {NOISEFLOOR_IF_CUDA(launch_tiled), for_tiled, layers_workspace_bytes}},
    {kTensorCoreSm80, {NOISEFLOOR_IF_SM80(launch_tensor_core_sm80), for_tensor_core_sm80, layers_workspace_bytes}},
    {kPtxSm90a, {NOISEFLOOR_IF_SM90A(launch_ptx_sm90a), for_ptx_sm90a, layers_workspace_bytes}},
};

}  // namespace

std::size_t layers_workspace_bytes(const Problem& p, DType, const DeviceInfo&) {
  return p.perceptron() ? static_cast<std::size_t>(p.batch * (p.channels + p.hidden)) * sizeof(float) : 0;
}

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::timestep_embedding
