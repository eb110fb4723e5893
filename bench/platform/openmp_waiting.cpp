#include "bench/platform/openmp_waiting.h"

#include <fmt/format.h>
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

namespace noisefloor {
namespace {

constexpr const char* kSettings[] = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"};

// Threads must still spin when a launch begins: between waking them and that, the account of each is read (1.5 us). A
// turn takes 20 to 50 ns.
std::string turns() {
  constexpr int kTurns = 4000, kTurnsAThread = 200;
  return std::to_string(kTurns + kTurnsAThread * std::min(omp_get_max_threads(), omp_get_num_procs()));
}

}  // namespace

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
  for (std::size_t at = 0; at < arguments.size(); at = arguments.find('\0', at) + 1) {
    pointers.push_back(arguments.data() + at);
    if (arguments.find('\0', at) == std::string::npos) break;
  }
  pointers.push_back(nullptr);
  setenv("OMP_WAIT_POLICY", "passive", 1);
  setenv("GOMP_SPINCOUNT", turns().c_str(), 1);
  (void)std::fflush(nullptr);
  if (pointers.size() > 1) execv("/proc/self/exe", pointers.data());
  for (const char* name : kSettings) unsetenv(name);  // they had no effect
  fmt::print(stderr, "warning: the program could not start itself again with OMP_WAIT_POLICY=passive; set it\n");
}

}  // namespace noisefloor
