// Several programs at once, each a line at a time on one terminal.
#pragma once

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/platform/child_process.h"

namespace noisefloor {

struct Lane {
  std::string name;  // in front of each of its lines
  ChildCommand command;
};

struct LaneResult {
  int exit_code = 0;   // 2 where it did not end by itself
  std::string ending;  // "exit code 1", "killed by signal 9 (Killed)"
  std::string output;  // what it wrote to standard output
};

struct SideBySideResult {
  std::vector<LaneResult> lanes;
  int interrupted_by = 0;  // SIGINT, SIGTERM or SIGHUP: every lane was then told to end, and has

  int worst_exit_code() const;
};

// Runs all lanes to their end; one that fails does not stop the others. What they write to standard error goes to
// `progress` line by line behind the lane's name. Where this process is told to end, the lanes get SIGTERM, and SIGKILL
// ten seconds later; where it is killed, they get SIGTERM. Throws std::runtime_error when a process cannot be made.
SideBySideResult run_side_by_side(const std::vector<Lane>& lanes, std::FILE* progress);

// Ends this process by the signal that ended its lanes, and says that `run` can be resumed.
[[noreturn]] void end_as_told(int signal, const std::filesystem::path& run);

}  // namespace noisefloor
