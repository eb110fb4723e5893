#include "bench/platform/process_limits.h"

#include <fmt/format.h>
#include <omp.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <vector>

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

constexpr const char* kSettings[] = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"};

// Threads must still spin when a launch begins: between waking them and that, the account of each is read (1.5 us). A
// turn takes 20 to 50 ns.
std::string turns() {
  constexpr int kTurns = 4000, kTurnsAThread = 200;
  return std::to_string(kTurns + kTurnsAThread * std::min(omp_get_max_threads(), omp_get_num_procs()));
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

std::string openmp_waiting() {
  std::string text;
  for (const char* name : kSettings)
    if (const char* value = std::getenv(name)) text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  return text.empty() ? "default" : text;
}

void wait_briefly() {
  for (const char* name : kSettings)
    if (std::getenv(name) != nullptr) return;
  std::string arguments;
  {  // closed again: exec would hand the file on
    std::ifstream file("/proc/self/cmdline", std::ios::binary);
    arguments.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  std::vector<char*> pointers;
  for (std::size_t at = 0; at < arguments.size(); at += std::strlen(pointers.back()) + 1)
    pointers.push_back(arguments.data() + at);
  pointers.push_back(nullptr);
  setenv("OMP_WAIT_POLICY", "passive", 1);
  setenv("GOMP_SPINCOUNT", turns().c_str(), 1);
  (void)std::fflush(nullptr);
  if (pointers.size() > 1) execv("/proc/self/exe", pointers.data());
  for (const char* name : kSettings) unsetenv(name);  // they had no effect
  fmt::print(stderr, "warning: the program could not start itself again with OMP_WAIT_POLICY=passive; set it\n");
}

}  // namespace noisefloor
