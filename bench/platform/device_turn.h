// The turn of processes that share a GPU: one at a time uses it, while others compute on the host.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "bench/platform/child_process.h"

namespace noisefloor {

// flock() on a file: the turn goes with the process that has it, however that ends. A child that inherits the
// descriptor shares its parent's turn: either gives and takes it for both.
class DeviceTurn {
 public:
  // Waits for it; `before_waiting` is called where another has it. Throws std::system_error naming the file, also where
  // it is not a file of this user's.
  explicit DeviceTurn(
      std::filesystem::path file, const std::function<void()>& before_waiting = [] {});

  // Of a device, for this user's processes that have the same folder for temporary files.
  // Throws std::system_error.
  static std::filesystem::path file_of(const std::string& place);  // its PCI address, or "host"

  // Each throws std::system_error.
  void give();
  void take();          // waits; at once where this process, or the child that shares it, has it
  bool take_at_once();  // false: another has it
  int descriptor() const { return descriptor_; }

 private:
  bool lock(int operation);  // false where it would have to wait, and may not

  std::filesystem::path file_;
  Descriptor descriptor_;
};

}  // namespace noisefloor
