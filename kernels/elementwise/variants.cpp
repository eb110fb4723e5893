// The variants of elementwise. What each variant does is in README.md.
#include "kernels/device/limits.h"
#include "kernels/elementwise/elementwise.h"

namespace noisefloor::elementwise {
namespace {

// Tiles of a layout's grid, and extents that a kernel holds in 32 bits.
constexpr std::int64_t kMaxExtent = std::int64_t{1} << 21;
constexpr std::int64_t kMaxTransposedChannels = 65535 * 32;

Support can_stream(const Problem& p, DType dtype) {
  const bool by_row = p.broadcast || p.gated();
  return by_row ? streams(p.n * p.hw * (p.gated() ? 2 : 1), p.channels, dtype) : streams(1, p.total(), dtype);
}

Support for_tiled(const Problem& p, DType dtype) {
  if (!p.transposes()) return can_stream(p, dtype);
  // Tiles along channels are blocks along y, of 32 channels in fp32.
  if (p.hw > kMaxExtent || p.channels > kMaxTransposedChannels)
    return unsupported("needs hw of at most 2^21 and at most 65535 * 32 channels");
  return supported();
}

Support for_tensor_core_sm80(const Problem& p, DType dtype) {
  if (p.moves_data()) return unsupported("not applicable: moving data has no arithmetic for tensor cores to do");
  if (p.op == Operation::silu_fma || p.is_backward())
    return unsupported("not applicable: a product with a diagonal has one factor, and these each have their own");
  if (dtype == DType::fp32) return unsupported("needs bf16 or fp16");
  return can_stream(p, dtype);
}

Support for_ptx_sm90a(const Problem& p, DType dtype) {
  if (p.transposes() || p.gated())
    return unsupported("needs inputs in the order of y, as geglu and layouts have none; see tiled");
  return can_stream(p, dtype);
}

constexpr Definition::Variant kVariants[] = {NOISEFLOOR_HOST(), NOISEFLOOR_NAIVE(),
                                             NOISEFLOOR_TENSOR_CORE_SM80(for_tensor_core_sm80),
                                             NOISEFLOOR_PTX_SM90A(for_ptx_sm90a), NOISEFLOOR_TILED(for_tiled)};

}  // namespace

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::elementwise
