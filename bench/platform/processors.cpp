#include "bench/platform/processors.h"

#include <fcntl.h>
#include <omp.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>
#include <vector>

#include "kernels/core/parallel.h"

namespace noisefloor {
namespace {

namespace fs = std::filesystem;

// The second number of a thread's schedstat, in nanoseconds.
std::optional<double> waited_ns(int file) {
  std::array<char, 96> text{};
  const ssize_t length = pread(file, text.data(), text.size() - 1, 0);
  if (length <= 0) return std::nullopt;  // the thread has ended
  const char* const space = std::strchr(text.data(), ' ');
  if (space == nullptr) return std::nullopt;
  return static_cast<double>(std::strtoull(space + 1, nullptr, 10));
}

}  // namespace

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (const std::size_t colon = line.find(": "); line.starts_with("model name") && colon != std::string::npos)
      return line.substr(colon + 2);
  return "host CPU";
}

Processors describe_processors() {
  Processors found;
  found.model = cpu_name();
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) found.cores = CPU_COUNT(&allowed);
  std::ifstream("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") >> found.governor;
  double load = 0;
  if (getloadavg(&load, 1) == 1) found.load_average = load;
  return found;
}

PinnedThreads::PinnedThreads() {
  const int threads = host_threads();
  cpu_set_t all;
  CPU_ZERO(&all);
  if (std::getenv("OMP_PROC_BIND") != nullptr || std::getenv("OMP_PLACES") != nullptr ||
      std::getenv("GOMP_CPU_AFFINITY") != nullptr || sched_getaffinity(0, sizeof all, &all) != 0 ||
      CPU_COUNT(&all) != threads)
    return;
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &all)) cores.push_back(core);
  before_ = all;
#pragma omp parallel num_threads(threads)
  {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cores[static_cast<std::size_t>(omp_get_thread_num()) % cores.size()], &one);
    (void)sched_setaffinity(0, sizeof one, &one);
  }
}

PinnedThreads::~PinnedThreads() {
  if (!before_) return;
#pragma omp parallel num_threads(host_threads())
  { (void)sched_setaffinity(0, sizeof *before_, &*before_); }
}

RunQueueWatch::~RunQueueWatch() {
  while (!files_.empty()) forget(files_.begin());
}

void RunQueueWatch::forget(std::map<long, int>::iterator thread) {
  close(thread->second);
  files_.erase(thread);
}

void RunQueueWatch::list_threads() {
  std::set<long> found;
  std::error_code ignored;
  for (const auto& thread : fs::directory_iterator("/proc/self/task", ignored)) {
    const long id = std::strtol(thread.path().filename().c_str(), nullptr, 10);
    found.insert(id);
    if (files_.contains(id)) continue;
    const int file = open((thread.path() / "schedstat").c_str(), O_RDONLY | O_CLOEXEC);
    if (file >= 0) files_[id] = file;
  }
  for (auto thread = files_.begin(); thread != files_.end();) {
    const auto next = std::next(thread);
    if (!found.contains(thread->first)) forget(thread);
    thread = next;
  }
}

double RunQueueWatch::waited_us() const {
  if (files_.empty()) {
    constexpr double kSwitchUs = 1000;
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return kSwitchUs * static_cast<double>(usage.ru_nivcsw);
  }
  double sum = 0;
  for (const auto& [thread, file] : files_) sum += waited_ns(file).value_or(0);
  return sum * 1e-3;
}

double stolen_us() {
  std::ifstream file("/proc/stat");
  std::string name;
  double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
  file >> name >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal;
  if (!file || name != "cpu") return 0;
  return steal * 1e6 / static_cast<double>(sysconf(_SC_CLK_TCK));
}

int own_runnable_threads() {
  int count = 0;
  std::error_code ignored;
  for (const auto& thread : fs::directory_iterator("/proc/self/task", ignored)) {
    std::ifstream file(thread.path() / "stat");
    std::string text;
    std::getline(file, text);
    const auto name_end = text.rfind(')');  // a name may hold anything
    if (name_end != std::string::npos && name_end + 2 < text.size() && text[name_end + 2] == 'R') ++count;
  }
  return count;
}

bool may_still_work(int others, double waited, double computed) {
  constexpr double kMostWaited = 1, kMostComputed = 0.1;  // of each
  return others > 0 && waited < kMostWaited && computed < kMostComputed * others;
}

std::optional<double> other_runnable_threads() {
  std::ifstream file("/proc/loadavg");
  double minute = 0, five = 0, fifteen = 0;
  int running = 0;
  if (!(file >> minute >> five >> fifteen >> running)) return std::nullopt;
  return std::max(0, running - own_runnable_threads());
}

std::optional<double> load_of_others() {
  constexpr int kReadings = 40;
  double sum = 0;
  for (int i = 0; i < kReadings; ++i) {
    const auto now = other_runnable_threads();
    if (!now) return std::nullopt;
    sum += *now;
    std::this_thread::sleep_for(std::chrono::microseconds(2500));
  }
  return sum / kReadings;
}

}  // namespace noisefloor
