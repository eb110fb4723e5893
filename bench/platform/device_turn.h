// The turn of processes that share a GPU: one at a time uses it, while others compute on the host.
#pragma once

#include <filesystem>
#include <string>

#include "bench/platform/child_process.h"

namespace noisefloor {

// flock() on a file: the turn goes with the process that has it, however that ends. A child that inherits the
// descriptor shares its parent's turn: either gives and takes it for both.
class DeviceTurn {
 public:
  // Waits for it. Throws std::system_error naming the file.
  explicit DeviceTurn(std::filesystem::path file);

  // Of a device, for this user's processes that have the same folder for temporary files.
  static std::filesystem::path file_of(const std::string& place);  // its PCI address, or "host"

  // Each throws std::system_error.
  void give();
  void take();  // waits; at once where this process, or the child that shares it, has it
  int descriptor() const { return descriptor_; }

 private:
  void lock(int operation);

  std::filesystem::path file_;
  Descriptor descriptor_;
};

}  // namespace noisefloor
