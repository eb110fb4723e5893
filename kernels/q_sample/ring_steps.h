// How many vectors a thread of drawn_ring.cuh takes.
#pragma once

#include <cstdint>

namespace noisefloor::q_sample {

inline constexpr std::uint32_t kRingThreads = 256;
inline constexpr std::uint32_t kRingBlocksPerSm = 4;

// Blocks of an image of `vectors`, of `steps` vectors a thread.
inline std::uint32_t ring_tiles(std::uint32_t vectors, std::uint32_t steps) {
  return (vectors + steps * kRingThreads - 1) / (steps * kRingThreads);
}

// 1, 2, 4, 8 or 16: that with which the last of the SMs' rounds of blocks ends first, where a block takes the time of
// its steps and, as an estimate, of one more to begin.
inline std::uint32_t ring_steps(std::uint32_t vectors, std::int64_t images, int sm_count) {
  const std::int64_t resident = static_cast<std::int64_t>(kRingBlocksPerSm) * sm_count;
  const auto time = [&](std::uint32_t steps) {
    const std::int64_t blocks = images * ring_tiles(vectors, steps);
    return (blocks + resident - 1) / resident * (steps + 1);
  };
  std::uint32_t best = 1;
  for (std::uint32_t steps = 2; steps <= 16; steps *= 2)
    if (time(steps) < time(best)) best = steps;
  return best;
}

}  // namespace noisefloor::q_sample
