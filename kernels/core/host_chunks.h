// Streaming loops of the host variants: a few thousand elements at a time, widened to float in buffers that stay in
// cache.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/core/noise_stream.h"
#include "kernels/core/parallel.h"

namespace noisefloor {

inline constexpr std::int64_t kHostChunk = 2048;  // elements: 8 KiB as float

template <int kBuffers>
struct HostBuffers {
  float at[kBuffers][kHostChunk];
};

// Calls body(row, begin, count, buffers) for chunks [begin, begin + count) of each of `rows` rows of `elements`, on all
// cores; chunks begin at multiples of kHostChunk.
template <int kBuffers, class Body>
void for_host_chunks(std::int64_t rows, std::int64_t elements, const Body& body) {
  const std::int64_t chunks = (elements + kHostChunk - 1) / kHostChunk;
  const std::int64_t grain = std::max<std::int64_t>(1, 32768 / std::min(elements, kHostChunk));
  parallel_for(rows * chunks, grain, [&](std::int64_t first, std::int64_t last) {
    HostBuffers<kBuffers> buffers;
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t begin = i % chunks * kHostChunk;
      body(i / chunks, begin, std::min(kHostChunk, elements - begin), buffers);
    }
  });
}

// The normal numbers of a chunk of an image, from element `begin` on, by the polynomials of philox.h: all kHostChunk,
// or whole blocks of as many as are asked for, eight blocks at a time with AVX2.
inline void draw_host_chunk(const NoiseStream& stream, std::int64_t image, std::int64_t begin, float* __restrict out,
                            std::int64_t count = kHostChunk) {
  static_assert(kHostChunk % kNormalsPerBlock == 0);
  const auto first = static_cast<std::uint32_t>(begin / kNormalsPerBlock);
  const auto blocks = static_cast<std::uint32_t>((count + kNormalsPerBlock - 1) / kNormalsPerBlock);
  for (std::uint32_t b = 0; b < blocks; ++b) {
    const Normal4 normal = box_muller4(noise_words(stream, static_cast<std::uint64_t>(image), first + b));
    for (int i = 0; i < kNormalsPerBlock; ++i) out[kNormalsPerBlock * b + static_cast<std::uint32_t>(i)] = normal.v[i];
  }
}

}  // namespace noisefloor
