// Which CPUs each of several processes gets, so that they stay out of each other's way.
#pragma once

#include <string>
#include <vector>

namespace noisefloor {

// "0-3,8" -> {0, 1, 2, 3, 8}, the kernel's way to write a set of CPUs. Empty where the text is anything else.
std::vector<int> parse_cpu_list(const std::string& text);

// The CPUs near each PCI device (of "0000:17:00.0"; those of its NUMA node), that this process may use, with the two
// threads of a core beside each other. Empty where the kernel does not say.
std::vector<int> cpus_near(const std::string& pci_bus_id);

// Processes with the same CPUs share them out evenly, in order. All empty where one would get none.
std::vector<std::vector<int>> share_cpus(const std::vector<std::vector<int>>& near);

}  // namespace noisefloor
