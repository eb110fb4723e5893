// The machine that a call from Python runs on: what launchers may know of it, and which GPU is the current one.
#pragma once

#include <string>

#include "python/call.h"

namespace noisefloor::python {

// Of the host, or of the GPU of that number, asked once. Throws std::runtime_error where there is no such GPU, and in a
// build without CUDA.
const DeviceInfo& host_info();
const DeviceInfo& gpu_info(int index);
// As env.json of a run has it: "NVIDIA H200", "AMD EPYC 9654 96-Core Processor (96 cores)".
std::string host_name();
std::string gpu_name(int index);

// Makes a GPU the current one for as long as it lives.
class CurrentGpu {
 public:
  explicit CurrentGpu(int index);
  ~CurrentGpu();
  CurrentGpu(const CurrentGpu&) = delete;
  CurrentGpu& operator=(const CurrentGpu&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

bool is_current(const Device& device);

// Whether a CUDA graph is capturing the stream, which then runs nothing.
bool captures(const Device& device, Stream stream);
void wait_for(const Device& device, Stream stream);

std::string cuda_error_text(int error);

}  // namespace noisefloor::python
