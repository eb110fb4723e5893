#include "kernels/convolution/narrow.h"

namespace noisefloor::convolution {

Support can_run_ptx_sm80_narrow(const Convolution& c, DType dtype) {
  const int taps = c.y.taps * c.x.taps;
  if (const Support plain = takes_plain_input(c); !plain) return plain;
  if (dtype == DType::fp32) return unsupported("needs bf16 or fp16");
  if (c.cin > kNarrowChannels) return unsupported("needs at most 32 input channels");
  if (taps == 1) return unsupported("needs several taps; one is a product");
  if (taps > kNarrowTaps || c.k() > kNarrowTerms) return unsupported("needs at most 288 terms of a sum, and 32 taps");
  if (c.input_elements() > kMaxBlocks) return unsupported("needs fewer than 2^31 elements of its input");
  if (c.rows() + kNarrowRows > kMaxBlocks || tile_count(c, kNarrowRows, 16) > kMaxBlocks)
    return unsupported("needs fewer than 2^31 output pixels, and tiles of 64x16");
  return supported();
}

std::size_t ptx_sm80_narrow_prepared_bytes(const Convolution& c, DType dtype, bool summed) {
  return narrow_weight_bytes(c, dtype) + (summed ? summed_weight_bytes(c.cin, c.cout, dtype) : 0);
}

}  // namespace noisefloor::convolution
