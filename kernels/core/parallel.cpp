#include "kernels/core/parallel.h"

#include <pthread.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <atomic>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

namespace noisefloor {

#ifdef _OPENMP
namespace {

// A size as libgomp reads it: a number, and B, K, M or G; without a letter it is of KiB. None where libgomp passes it
// over.
std::optional<std::size_t> size_of(const char* text) {
  constexpr std::string_view kUnits = "BKMG";
  constexpr int kBits = 10;  // from one unit to the next
  constexpr std::size_t kSmallest = std::size_t{16} << 10;
  const auto skip_blanks = [](const char* at) {
    while (std::isspace(static_cast<unsigned char>(*at)) != 0) ++at;
    return at;
  };
  char* behind = nullptr;
  errno = 0;
  const std::size_t number = std::strtoul(text, &behind, 10);
  const char* at = skip_blanks(behind);
  if (behind == text || errno != 0) return std::nullopt;
  std::size_t unit = 1;
  if (*at != '\0') {
    unit = kUnits.find(static_cast<char>(std::toupper(static_cast<unsigned char>(*at))));
    if (unit == std::string_view::npos || *skip_blanks(at + 1) != '\0') return std::nullopt;
  }
  const auto bits = static_cast<int>(unit) * kBits;
  const std::size_t size = number << bits;
  return size >> bits == number && size >= kSmallest ? std::optional(size) : std::nullopt;
}

// What libgomp gives each thread.
std::size_t stack_of_threads() {
  for (const char* name : {"OMP_STACKSIZE", "GOMP_STACKSIZE"})
    if (const char* text = std::getenv(name))
      if (const auto size = size_of(text)) return *size;
  pthread_attr_t attributes;
  std::size_t size = 0;
  if (pthread_attr_init(&attributes) != 0) return 0;
  (void)pthread_attr_getstacksize(&attributes, &size);
  (void)pthread_attr_destroy(&attributes);
  return size;
}

long threads_that_run() {
  std::error_code error;
  long count = 0;
  for (std::filesystem::directory_iterator at("/proc/self/task", error), end; !error && at != end; at.increment(error))
    ++count;
  return count;
}

// Makes as many of `wanted` threads as can be, all there at once, and returns their number. A thread that was joined
// counts against the limits until the system has taken it off its list.
int try_threads(int wanted, std::size_t stack) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return 0;
  const long before = threads_that_run();
  std::mutex gate;
  std::vector<pthread_t> made;
  if (pthread_attr_setstacksize(&attributes, stack) == 0) {
    made.reserve(static_cast<std::size_t>(wanted));
    const std::lock_guard closed(gate);
    const auto pass = [](void* mutex) -> void* {
      const std::lock_guard passed(*static_cast<std::mutex*>(mutex));
      return nullptr;
    };
    for (pthread_t thread{}; static_cast<int>(made.size()) < wanted; made.push_back(thread))
      if (pthread_create(&thread, &attributes, pass, &gate) != 0) break;
  }
  (void)pthread_attr_destroy(&attributes);
  for (const pthread_t thread : made) (void)pthread_join(thread, nullptr);
  constexpr int kLooks = 100;
  for (int look = 0; look < kLooks && threads_that_run() > before; ++look)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return static_cast<int>(made.size());
}

// Of `wanted` threads, this one among them. Near a limit half of what can be made: others come and go beside this
// process.
int possible_threads(int wanted) {
  const std::size_t stack = stack_of_threads();
  if (wanted <= 1 || stack < kHostStack) return 1;
  const int others = try_threads(wanted - 1, stack);
  const int possible = 1 + (others == wanted - 1 ? others : others / 2);
#pragma omp parallel num_threads(possible)  // libgomp keeps them
  {
#pragma omp barrier
  }
  return possible;
}

}  // namespace

int host_threads() {
  if (omp_in_parallel() != 0) return 1;
  static const int processors = omp_get_num_procs();  // now: a thread may be bound to one of them later on
  static std::atomic<int> tried = 1, possible = 1;
  const int wanted = std::min({omp_get_max_threads(), omp_get_thread_limit(), processors});
  if (wanted > tried) {
    static std::mutex turn;
    const std::lock_guard lock(turn);
    if (wanted > tried) {
      possible = possible_threads(wanted);
      tried = wanted;
    }
  }
  return std::min<int>(wanted, possible);
}
#else
int host_threads() {
  return 1;
}
#endif

}  // namespace noisefloor
