#include "bench/commands/sweep_turn.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace noisefloor {

SweepTurn::SweepTurn(const std::string& device) {
  if (device == "host") return;
  std::string why;
  for (const CudaDevice& one : list_cuda_devices(why))
    if (std::to_string(one.index) == (device.empty() ? "0" : device)) take(one.pci_bus_id);
}

void SweepTurn::share(Platform& platform) {
  const PlatformDescription& device = platform.description();
  if (!turn_) take(device.is_host ? "host" : device.pci_bus_id);  // its number may be written in another way
  platform.share(*turn_);
}

double SweepTurn::left_of(double budget_seconds) const {
  constexpr double kNothing = 1e-9;  // 0 would be a budget without an end
  if (budget_seconds <= 0) return budget_seconds;
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin_;
  return std::max(kNothing, budget_seconds - spent.count());
}

void SweepTurn::take(const std::string& place) {
  const std::filesystem::path file = DeviceTurn::file_of(place);
  fmt::print(stderr, "in turns with other sweeps that lock {}\n", file.string());
  turn_.emplace(file, [] { fmt::print(stderr, "another one has the turn: waiting\n"); });
}

}  // namespace noisefloor
