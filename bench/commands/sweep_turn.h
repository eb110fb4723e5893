// The turn of a sweep that shares its device with others.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "bench/platform/device_turn.h"
#include "bench/platform/platform.h"

namespace noisefloor {

class SweepTurn {
 public:
  // Waits for the turn of the GPU that open_platform(device) will open, before anything is put on it. Of the host it is
  // waited for when the platform is shared: it starts the program again before anything is opened. Says where it waits.
  explicit SweepTurn(const std::string& device);
  void share(Platform& platform);

  DeviceTurn* turn() { return &*turn_; }
  // Of a budget in seconds (0: none), what was spent since this began.
  double left_of(double budget_seconds) const;

 private:
  void take(const std::string& place);

  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::optional<DeviceTurn> turn_;
};

}  // namespace noisefloor
