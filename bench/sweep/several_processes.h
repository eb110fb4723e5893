// A sweep by several processes, one after the other: what a process draws once, such as where its graphs lie, is then
// not in all samples of a row.
//
//   RUN/            the run of all of them together (reports/run/pool_rows.h)
//   RUN/process-1/  a complete run folder, as of a sweep without --processes
//   RUN/process-2/
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace noisefloor {

inline constexpr int kMostProcesses = 64;

// Makes RUN, calls `begun`, sweeps into RUN/process-1 to -N by `arguments`, the command line with --processes, and
// puts them together. What is there already is resumed, if all will have the same cases; with --fresh among the
// arguments, the run files of all processes that are there are removed before the first one begins. Returns the worst
// exit code; from 2 on nothing was put together. Does not return when the process was told to end. Throws
// std::runtime_error where RUN is something else, or its processes hold other cases.
int sweep_by_processes(int processes, const std::vector<std::string>& arguments, const std::filesystem::path& run,
                       const std::function<void()>& begun);

}  // namespace noisefloor
