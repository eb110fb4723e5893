// Why counters are not to be had, in a word for the row and in a sentence for the reader.
#pragma once

#include <stdexcept>
#include <string>

namespace noisefloor {

// `ok_below_l2`: counted, but not what DRAM moves: the tensors fit into L2. `off`: not asked for. `busy`: another
// profiler holds the hardware. `unsupported_device`: virtualised, MIG, WSL, ...
enum class CounterStatus {
  ok,
  ok_below_l2,
  off,
  no_cupti,
  no_device,
  no_permission,
  busy,
  unsupported_device,
  unsupported_chip,
  failed
};

const char* to_string(CounterStatus status);  // the word in the column counter_status

class CountersUnavailable : public std::runtime_error {
 public:
  CountersUnavailable(CounterStatus status, const std::string& message)
      : std::runtime_error(message), status_(status) {}
  CounterStatus status() const { return status_; }

 private:
  CounterStatus status_;
};

// What a CUptiResult of a failed call means: the status, and a message that says what to do.
CountersUnavailable counters_unavailable(int cupti_result, const std::string& call);

}  // namespace noisefloor
