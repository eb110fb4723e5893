// The variants of layernorm. What each variant does is in README.md.
#include "kernels/layernorm/layernorm.h"

namespace noisefloor::layernorm {
namespace {

constexpr std::int64_t kMaxRowBytes = 96 * 1024;  // a stage of bulk_pipeline.cuh

std::int64_t row_bytes(const Problem& p, DType dtype) {
  return p.channels * static_cast<std::int64_t>(size_of(dtype));
}

Support in_vectors(const Problem& p, DType dtype) {
  if (row_bytes(p, dtype) % 16 != 0) return unsupported("needs channels that are a multiple of 16 bytes");
  return supported();
}

Support for_tiled(const Problem& p, DType dtype) {
  if (row_bytes(p, dtype) > 64 * 1024) return unsupported("needs a row of at most 64 KiB, the registers of a block");
  return in_vectors(p, dtype);
}

Support for_tensor_core_sm80(const Problem& p, DType dtype) {
  if (dtype == DType::fp32) return unsupported("needs bf16 or fp16");
  if (p.channels < 32) return unsupported("needs 32 channels or more, to average out roundings");
  return in_vectors(p, dtype);
}

Support for_ptx_sm90a(const Problem& p, DType dtype) {
  if (row_bytes(p, dtype) * (p.residual ? 2 : 1) > kMaxRowBytes)
    return unsupported("needs a row, with that of the residual, of at most 96 KiB");
  return in_vectors(p, dtype);
}

constexpr Definition::Variant kVariants[] = {NOISEFLOOR_HOST(), NOISEFLOOR_TENSOR_CORE_SM80(for_tensor_core_sm80),
                                             NOISEFLOOR_NAIVE(), NOISEFLOOR_PTX_SM90A(for_ptx_sm90a),
                                             NOISEFLOOR_TILED(for_tiled)};

}  // namespace

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::layernorm
