// The variants of resample. What each variant does is in README.md.
#include "kernels/device/limits.h"
#include "kernels/resample/resample.h"

namespace noisefloor::resample {
namespace {

constexpr std::int64_t kMaxPixelBytes = 96 * 1024;  // of concat: a stage of bulk_pipeline.cuh

Support can_stream(const Problem& p, DType dtype) {
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  if (p.channels * size % 16 != 0 || p.skip_channels * size % 16 != 0)
    return unsupported("needs pixels that are a multiple of 16 bytes");
  if (p.op == Operation::average_down2) return streams(p.n * p.h * p.w, p.channels, dtype);
  return streams(p.n * p.out_h() * p.out_w(), p.out_channels(), dtype);
}

Support for_tensor_core_sm80(const Problem& p, DType dtype) {
  if (p.moves_data()) return unsupported("not applicable: moving data has no arithmetic for tensor cores to do");
  if (dtype == DType::fp32) return unsupported("needs bf16 or fp16");
  return can_stream(p, dtype);
}

Support for_ptx_sm90a(const Problem& p, DType dtype) {
  if (p.op == Operation::average_down2) return unsupported("not a mean, of which see tiled");
  if (p.op == Operation::concat && p.out_channels() * static_cast<std::int64_t>(size_of(dtype)) > kMaxPixelBytes)
    return unsupported("needs pixels of y of at most 96 KiB");
  return can_stream(p, dtype);
}

constexpr Definition::Variant kVariants[] = {NOISEFLOOR_HOST(), NOISEFLOOR_NAIVE(),
                                             NOISEFLOOR_TENSOR_CORE_SM80(for_tensor_core_sm80),
                                             NOISEFLOOR_PTX_SM90A(for_ptx_sm90a), NOISEFLOOR_TILED(can_stream)};

}  // namespace

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::resample
