// The variants of sampler_step. What each variant does is in README.md.
#include "kernels/sampler_step/sampler_step.h"

namespace noisefloor::sampler_step {
namespace {

// Vectors are numbered below 2^31 (Divider).
Support can_run_tiled(const Problem& problem, DType dtype) {
  const std::int64_t lanes = 16 / static_cast<std::int64_t>(size_of(dtype));
  if ((problem.elements + lanes - 1) / lanes * problem.batch >= std::int64_t{1} << 31)
    return unsupported("needs fewer than 2^31 vectors of 16 bytes");
  return supported();
}

Support can_run_tensor_core_sm80(const Problem& problem, DType dtype) {
  if (dtype != DType::bf16)
    return unsupported("needs bf16: fp16 cannot hold the coefficients of a schedule's first steps");
  if (problem.elements % 8 != 0) return unsupported("needs images whose length is a multiple of 8");
  return supported();
}

Support can_run_ptx_sm90a(const Problem& problem, DType dtype) {
  if (problem.elements * static_cast<std::int64_t>(size_of(dtype)) % 16 != 0)
    return unsupported("needs images whose length is a multiple of 16 bytes");
  return can_run_tiled(problem, dtype);
}

constexpr Definition::Variant kVariants[] = {NOISEFLOOR_HOST(), NOISEFLOOR_TENSOR_CORE_SM80(can_run_tensor_core_sm80),
                                             NOISEFLOOR_NAIVE(), NOISEFLOOR_TILED(can_run_tiled),
                                             NOISEFLOOR_PTX_SM90A(can_run_ptx_sm90a)};

}  // namespace

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::sampler_step
