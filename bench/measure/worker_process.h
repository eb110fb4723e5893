// A program at the other end of two pipes, asked and answered line by line.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace noisefloor {

// It died, did not answer in time, or could not be started. It is gone then.
class WorkerGone : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct WorkerCommand {
  std::vector<std::string> arguments;                                 // the program first, looked for on PATH
  std::vector<std::pair<std::string, std::string>> environment = {};  // beside this process's own
  std::string folder = {};                                            // to run in; empty: where this process does
};

class WorkerProcess {
 public:
  // Throws WorkerGone when no process can be made. A program that cannot be run shows at the first receive().
  explicit WorkerProcess(const WorkerCommand& command);
  ~WorkerProcess();  // ends the process
  WorkerProcess(const WorkerProcess&) = delete;

  // Each throws WorkerGone with how the process ended, and the last line of what it wrote to standard error.
  void send(const std::string& line);
  std::string receive(double seconds);  // a line without its end, within so many seconds

 private:
  void read_some(std::chrono::milliseconds patience);
  std::string end(std::chrono::milliseconds patience);  // how it ended, in words
  bool has_ended() const;
  [[noreturn]] void fail(const std::string& how);

  pid_t pid_ = -1;
  int input_ = -1, output_ = -1, errors_ = -1;
  std::string answers_, complaints_;
};

}  // namespace noisefloor
