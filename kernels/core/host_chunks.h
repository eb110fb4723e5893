// Streaming loops of the host variants: a few thousand elements at a time, widened to float in buffers that stay in
// cache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>

#include "kernels/core/noise_stream.h"
#include "kernels/core/parallel.h"

namespace noisefloor {

inline constexpr std::int64_t kHostChunk = 2048;  // elements: 8 KiB as float

template <int kBuffers>
struct HostBuffers {
  float at[kBuffers][kHostChunk];
};

// Calls body(row, begin, count, buffers) for chunks [begin, begin + count) of each of `rows` rows of `elements`, on at
// most so many cores; chunks begin at multiples of kHostChunk.
template <int kBuffers, class Body>
void for_host_chunks(std::int64_t rows, std::int64_t elements, const Body& body,
                     int most_threads = std::numeric_limits<int>::max()) {
  const std::int64_t chunks = (elements + kHostChunk - 1) / kHostChunk;
  const std::int64_t grain = std::max<std::int64_t>(1, 32768 / std::min(elements, kHostChunk));
  parallel_for_by(most_threads, rows * chunks, grain, [&](std::int64_t first, std::int64_t last) {
    HostBuffers<kBuffers> buffers;
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t begin = i % chunks * kHostChunk;
      body(i / chunks, begin, std::min(kHostChunk, elements - begin), buffers);
    }
  });
}

// The sum of such chunks' body(row, begin, count, buffers), each left in the workspace, [rows, chunks]; added in their
// order, whatever the number of threads.
inline std::int64_t host_chunks(std::int64_t rows, std::int64_t elements) {
  return rows * ((elements + kHostChunk - 1) / kHostChunk);
}
template <int kBuffers, class Body>
double sum_host_chunks(std::int64_t rows, std::int64_t elements, void* workspace, const Body& body,
                       int most_threads = std::numeric_limits<int>::max()) {
  auto* const sums = static_cast<double*>(workspace);
  for_host_chunks<kBuffers>(
      rows, elements,
      [&](std::int64_t row, std::int64_t begin, std::int64_t count, auto& buffers) {
        sums[row * host_chunks(1, elements) + begin / kHostChunk] = body(row, begin, count, buffers);
      },
      most_threads);
  return std::accumulate(sums, sums + host_chunks(rows, elements), 0.0);
}

// The normal numbers of a chunk of an image, from element `begin` on, by the polynomials of philox.h: `count`, and up
// to the next multiple of 64, so that loops of a known length are vectorised, eight blocks at a time with AVX2.
inline void draw_host_chunk(const NoiseStream& stream, std::int64_t image, std::int64_t begin, float* __restrict out,
                            std::int64_t count = kHostChunk) {
  constexpr std::int64_t kNumbers = 64;
  static_assert(kHostChunk % kNumbers == 0);
  const auto first = static_cast<std::uint32_t>(begin / kNormalsPerBlock);
  for (std::int64_t some = 0; some < count; some += kNumbers)
    for (std::int64_t b = 0; b < kNumbers / kNormalsPerBlock; ++b) {
      const auto block = first + static_cast<std::uint32_t>(some / kNormalsPerBlock + b);
      const Normal4 normal = box_muller4(noise_words(stream, static_cast<std::uint64_t>(image), block));
      for (int i = 0; i < kNormalsPerBlock; ++i) out[some + kNormalsPerBlock * b + i] = normal.v[i];
    }
}

}  // namespace noisefloor
