#include "bench/platform/large_memory.h"

#include <sys/mman.h>

#include <new>

namespace noisefloor {

LargeMemory allocate_large(std::size_t bytes) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20, kCacheLine = 64;
  const std::size_t grain = bytes < kHugePage ? kCacheLine : kHugePage;
  const std::size_t rounded = (bytes + grain - 1) / grain * grain;
  LargeMemory memory(static_cast<char*>(std::aligned_alloc(grain, rounded)));
  if (memory == nullptr) throw std::bad_alloc();
  // Advice only: fewer page faults and TLB misses.
  if (grain == kHugePage) madvise(memory.get(), rounded, MADV_HUGEPAGE);
  return memory;
}

}  // namespace noisefloor
