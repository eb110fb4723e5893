// Memory of the host for large data.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace noisefloor {

struct FreeDeleter {
  void operator()(void* memory) const { std::free(memory); }
};
using LargeMemory = std::unique_ptr<char, FreeDeleter>;

// Not initialised; from a huge page on in huge pages, where the system grants them. Throws std::bad_alloc.
LargeMemory allocate_large(std::size_t bytes);

}  // namespace noisefloor
