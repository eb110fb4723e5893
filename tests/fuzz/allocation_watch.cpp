// The largest allocation while a target runs: through the hooks of AddressSanitizer where it is there, else by standing
// in for operator new.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "tests/fuzz/targets.h"

#if defined(__SANITIZE_ADDRESS__)
#define NOISEFLOOR_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define NOISEFLOOR_ASAN 1
#endif
#endif

namespace noisefloor::fuzz {
namespace {

bool watching = false;
std::size_t largest = 0;

void note(std::size_t bytes) {
  if (watching) largest = std::max(largest, bytes);
}

}  // namespace

void run_watched(const Target& target, Input input) {
  largest = 0;
  watching = true;
  target.run(input);
  watching = false;
  const auto lines = static_cast<std::size_t>(std::count(input.begin(), input.end(), '\n')) + 1;
  const std::size_t limit = 4 * input.size() + kSmall + target.row_bytes * lines;
  if (largest <= limit) return;
  std::fprintf(stderr, "%s: an allocation of %zu bytes for an input of %zu; the limit is %zu\n", target.name, largest,
               input.size(), limit);
  std::abort();
}

}  // namespace noisefloor::fuzz

#ifdef NOISEFLOOR_ASAN
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void*, std::size_t),
                                                         void (*)(const volatile void*));
namespace {
const int hooked = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, std::size_t bytes) { noisefloor::fuzz::note(bytes); }, [](const volatile void*) {});
}  // namespace
#else
void* operator new(std::size_t bytes) {
  noisefloor::fuzz::note(bytes);
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new[](std::size_t bytes) {
  return operator new(bytes);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
#endif
