// Memory of the host for large data.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace noisefloor {

struct FreeDeleter {
  void operator()(void* memory) const { std::free(memory); }
};
using LargeMemory = std::unique_ptr<char, FreeDeleter>;

// Not initialised; from a huge page on in huge pages, where the system grants them. Throws std::bad_alloc.
inline LargeMemory allocate_large(std::size_t bytes) {
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
