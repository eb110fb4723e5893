// Picks the fastest of a vendor library's algorithms by timing each on the device under the same conditions.
#pragma once

#include <functional>
#include <vector>

#include "kernels/core/device.h"
#include "kernels/core/status.h"

namespace noisefloor {

struct Timed {
  double microseconds;  // median, L2 evicted before every sample
  int index;            // of the candidate
};

struct Tuned {
  Status status;               // not ok: no candidate ran, or the device failed
  std::vector<Timed> ranking;  // the fastest candidates, best first; not empty when ok
  int ran = 0;                 // candidates that launched; the library refused the others
};

// `launch(i)` enqueues candidate i on context.stream. Every candidate is sampled three times and the eight fastest
// fifteen times, always with an L2 that a read-only pass has evicted. Samples no further candidates after
// `budget_seconds`. Blocks.
Tuned rank_candidates(int count, const std::function<Status(int)>& launch, const LaunchContext& context,
                      double budget_seconds = 4.0);

// Enqueues a pass that reads `bytes` at `buffer`, which leaves no dirty lines behind. `sink` is 4 bytes that are never
// written.
Status enqueue_eviction(const void* buffer, std::size_t bytes, void* sink, const LaunchContext& context);

}  // namespace noisefloor
