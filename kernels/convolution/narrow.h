// Limits of ptx_sm80_narrow, and the shared memory that a tile of it takes.
#pragma once

#include "kernels/convolution/convolution.h"

namespace noisefloor::convolution {

inline constexpr int kNarrowTaps = 32;                    // one bit each
inline constexpr int kNarrowChannels = 32;                // of the input, at most
inline constexpr int kNarrowTerms = 9 * kNarrowChannels;  // of a sum: a 3x3 of as many
inline constexpr int kNarrowRows = 64;                    // of a tile

// Steps of 16 terms; a row of so many in shared memory, in bytes. 16 more bytes than the terms take make its length an
// odd multiple of 16, so that eight rows of an ldmatrix lie in different banks.
constexpr int narrow_steps(std::int64_t terms) {
  return static_cast<int>((terms + 15) / 16);
}
constexpr int narrow_row_bytes(std::int64_t terms) {
  return narrow_steps(terms) * 32 + 16;
}

// Of the weights, each row in whole steps: [phases][cout][steps * 16].
constexpr std::size_t narrow_weight_bytes(const Convolution& c, DType dtype) {
  return static_cast<std::size_t>(std::int64_t{c.phases()} * c.cout * narrow_steps(c.k()) * 16) * size_of(dtype);
}

}  // namespace noisefloor::convolution
