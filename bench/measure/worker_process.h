// A program at the other end of two pipes, asked and answered line by line.
#pragma once

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>

#include "bench/platform/child_process.h"

namespace noisefloor {

// It died, did not answer in time, or could not be started. It is gone then.
class WorkerGone : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class WorkerProcess {
 public:
  // Throws WorkerGone when no process can be made. A program that cannot be run shows at the first receive().
  explicit WorkerProcess(const ChildCommand& command);

  // Each throws WorkerGone with how the process ended, and the last line of what it wrote to standard error.
  void send(const std::string& line);
  std::string receive(double seconds);  // a line without its end, within so many seconds

 private:
  void read_some(std::chrono::milliseconds patience);
  std::string end(std::chrono::milliseconds patience);  // how it ended, in words
  [[noreturn]] void fail(const std::string& how);

  std::unique_ptr<ChildProcess> child_;  // none once it has ended
  std::string complaints_;               // the end of what it wrote to standard error
};

}  // namespace noisefloor
