#include "bench/sweep/cpu_sets.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <map>

namespace noisefloor {
namespace {

std::string first_line(const std::string& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

}  // namespace

std::vector<int> parse_cpu_list(const std::string& text) {
  std::vector<int> cpus;
  const char* place = text.data();
  const char* const end = place + text.size();
  const auto number = [&](int& value) {
    const auto parsed = std::from_chars(place, end, value);
    place = parsed.ptr;
    return parsed.ec == std::errc() && value >= 0 && value < CPU_SETSIZE;
  };
  while (place != end) {
    int first = 0, last = 0;
    if (!number(first)) return {};
    last = first;
    if (place != end && *place == '-' && (++place, !number(last))) return {};
    if (last < first || (place != end && *place++ != ',')) return {};
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<int> cpus_near(const std::string& pci_bus_id) {
  std::string place = pci_bus_id;
  std::transform(place.begin(), place.end(), place.begin(), [](unsigned char c) { return std::tolower(c); });
  std::vector<int> cpus = parse_cpu_list(first_line("/sys/bus/pci/devices/" + place + "/local_cpulist"));
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return {};
  std::erase_if(cpus, [&](int cpu) { return !CPU_ISSET(static_cast<unsigned>(cpu), &allowed); });
  std::map<int, int> core;  // the first thread of the CPU's core
  for (const int cpu : cpus) {
    const auto siblings =
        parse_cpu_list(first_line(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu)));
    core[cpu] = siblings.empty() ? cpu : siblings.front();
  }
  std::stable_sort(cpus.begin(), cpus.end(), [&](int a, int b) { return core[a] < core[b]; });
  return cpus;
}

std::vector<std::vector<int>> share_cpus(const std::vector<std::vector<int>>& near) {
  std::vector<std::vector<int>> shares(near.size());
  for (std::size_t i = 0; i < near.size(); ++i) {
    const auto sharers = static_cast<std::size_t>(std::count(near.begin(), near.end(), near[i]));
    const auto before =
        static_cast<std::size_t>(std::count(near.begin(), near.begin() + static_cast<std::ptrdiff_t>(i), near[i]));
    const std::size_t begin = near[i].size() * before / sharers, end = near[i].size() * (before + 1) / sharers;
    if (begin == end) return std::vector<std::vector<int>>(near.size());
    shares[i].assign(near[i].begin() + static_cast<std::ptrdiff_t>(begin),
                     near[i].begin() + static_cast<std::ptrdiff_t>(end));
  }
  return shares;
}

}  // namespace noisefloor
