// What a launch runs, in 16 digits: two launches of which they are the same take the same time on the same device.
//
// They are of every kernel, memset and copy (its size), in order, with the edges between them: machine code, registers,
// shared memory, grid, block, cluster and arguments. In arguments, tensor maps among them, the addresses of device
// memory are blanked: where tensors lie is no part of it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "kernels/core/device.h"
#include "kernels/core/status.h"

namespace noisefloor {

// Takes down the machine code of each module that the driver loads, from its beginning to its end. Signatures need one
// that began before any kernel ran. One at a time a process.
class CodeWatch {
 public:
  virtual ~CodeWatch() = default;
  // Of what `enqueue` puts on `stream`, as one launch behind another: it is captured, and not run. Throws
  // std::runtime_error where it cannot be captured, or the code of a kernel is not known: it was loaded before.
  virtual std::string signature(Stream stream, const std::function<Status()>& enqueue) = 0;
};

// Throws CountersUnavailable: no CUPTI, another tool attached, a build without CUDA.
std::unique_ptr<CodeWatch> watch_code();

// Before anything of the device is opened; null where it is not to be had, and `say`, if any, gets why.
std::unique_ptr<CodeWatch> watch_code_if_possible(const std::function<void(const std::string&)>& say = {});

}  // namespace noisefloor
