// How ptx_sm90a shares out the statistics that are given where coefficients are all that is wanted: a block has a
// bundle of an image's groups. Pure arithmetic, tested on the host.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <optional>

#include "kernels/groupnorm/groupnorm.h"

namespace noisefloor::groupnorm {

inline constexpr int kFinishLanes = 4;        // statistics of a 16-byte access
inline constexpr int kFinishMaxColumns = 32;  // of a bundle: a warp's lanes are rows of columns
inline constexpr int kFinishMaxWarps = 16;
inline constexpr int kFinishFlight = 4;      // slabs that a thread asks for at once
inline constexpr int kFinishMaxBundle = 16;  // groups

struct FinishPlan {
  int bundle = 1;   // groups of a block; bundle * channels_per_group is a multiple of kFinishLanes
  int columns = 1;  // 16-byte columns of a bundle
  int pitch = 1;    // lanes of a warp that they take: the next power of two
  int warps = 1;    // of a block; a slab takes `pitch` lanes of it
};

// The narrowest bundle of whole columns; twice that, and so on to a line of 128 bytes, while there is a block for each
// SM. Nothing where groups are one channel wide (a column then has more than two) or the bundle has too many columns.
inline std::optional<FinishPlan> plan_finish(const Problem& p, int sm_count) {
  constexpr std::int64_t kLine = 128 / (kFinishLanes * 4);  // columns
  static_assert(kLine * kFinishLanes / 2 <= kFinishMaxBundle);
  const std::int64_t width = p.channels_per_group();
  if (p.channels % kFinishLanes != 0 || width < 2) return std::nullopt;
  std::int64_t bundle = kFinishLanes / std::gcd(width, std::int64_t{kFinishLanes});
  while (p.groups % (2 * bundle) == 0 && 2 * bundle * width / kFinishLanes <= kLine &&
         p.n * p.groups / (2 * bundle) >= sm_count)
    bundle *= 2;
  const std::int64_t columns = bundle * width / kFinishLanes;
  if (columns > kFinishMaxColumns) return std::nullopt;
  FinishPlan plan;
  plan.bundle = static_cast<int>(bundle);
  plan.columns = static_cast<int>(columns);
  plan.pitch = static_cast<int>(std::bit_ceil(static_cast<unsigned>(columns)));
  const std::int64_t slabs_of_warp = 32 / plan.pitch * kFinishFlight;
  plan.warps =
      static_cast<int>(std::min<std::int64_t>((p.given_slabs() + slabs_of_warp - 1) / slabs_of_warp, kFinishMaxWarps));
  return plan;
}

}  // namespace noisefloor::groupnorm
