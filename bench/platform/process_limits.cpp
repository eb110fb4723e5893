#include "bench/platform/process_limits.h"

#include <fmt/format.h>
#include <omp.h>
#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <stdexcept>

#include "kernels/core/parallel.h"

namespace noisefloor {
namespace {

// What most systems give: compilers in libraries need more than our code.
constexpr std::size_t kThreadStack = std::size_t{8} << 20;

// "ulimit -u is 32"; "ulimit -v is 65536 KiB" where `kib`.
std::string limit_text(char letter, __rlimit_resource_t resource, bool kib = false) {
  rlimit limit{};
  const bool none = getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY;
  const std::string value = none  ? "unlimited"
                            : kib ? fmt::format("{} KiB", limit.rlim_cur >> 10)
                                  : std::to_string(limit.rlim_cur);
  return fmt::format("ulimit -{} is {}", letter, value);
}

std::string memory_limits() {
  return fmt::format("{}, {}", limit_text('v', RLIMIT_AS, true), limit_text('d', RLIMIT_DATA, true));
}

}  // namespace

void require_stack() {
  rlimit stack{};
  if (getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur < kHostStack) {
    if (stack.rlim_max < kHostStack)
      throw std::runtime_error(fmt::format(
          "the stack is limited to {} KiB (ulimit -s), and at least {} KiB are needed; raise it with: ulimit -s 8192",
          stack.rlim_max >> 10, kHostStack >> 10));
    stack.rlim_cur = std::min<rlim_t>(stack.rlim_max, kThreadStack);
    (void)setrlimit(RLIMIT_STACK, &stack);
  }
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return;
  if (pthread_attr_setstacksize(&attributes, kThreadStack) == 0) (void)pthread_setattr_default_np(&attributes);
  (void)pthread_attr_destroy(&attributes);
}

std::string limit_behind(int error) {
  switch (error) {
    case EAGAIN:
      return fmt::format("; no more processes or threads can be made ({}; a container may allow fewer)",
                         limit_text('u', RLIMIT_NPROC));
    case EMFILE:
      return fmt::format("; no more files can be opened ({})", limit_text('n', RLIMIT_NOFILE));
    case ENOMEM:
      return fmt::format(" ({}; a container may allow less)", memory_limits());
    default:
      return "";
  }
}

std::string why_fewer_threads() {
  const int asked = std::min(omp_get_max_threads(), omp_get_thread_limit()), run = host_threads();
  if (run >= asked) return "";
  const bool named = std::getenv("OMP_NUM_THREADS") != nullptr;
  std::string text = fmt::format("{} {}, not {}{}: ", run, run == 1 ? "thread runs" : "threads run", asked,
                                 named ? " as OMP_NUM_THREADS says" : "");
  if (run == omp_get_num_procs())
    return text + fmt::format("this process has {} processor{}", run, run == 1 ? "" : "s");
  for (const char* name : {"OMP_STACKSIZE", "GOMP_STACKSIZE"})
    if (const char* size = std::getenv(name))
      return text + fmt::format("{} is {}, and each thread needs {} KiB or more that can be had", name, size,
                                kHostStack >> 10);
  return text + fmt::format("more cannot be made ({}, {}; a container may allow less)", limit_text('u', RLIMIT_NPROC),
                            memory_limits());
}

}  // namespace noisefloor
