// Several programs at once, each a line at a time on one terminal: a sweep of every GPU of the machine, one process
// each, each with a run folder of its own below one folder.
//
//   RUN/gpu0-nvidia-h200/   a complete run folder, as of `sweep --device 0`
//   RUN/gpu1-nvidia-h200/
//   RUN/gpus.csv            which GPU each of them is of, and how its sweep ended
//
// The layout is the same with one GPU. The number is CUDA's.
#pragma once

#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "bench/platform/child_process.h"
#include "bench/platform/platform.h"
#include "bench/sweep/plan.h"

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

// Runs all lanes to their end; one that fails does not stop the others. What they write to standard error goes to
// `progress` line by line behind the lane's name. A signal that ends this process ends the lanes, too. Throws
// std::runtime_error when a process cannot be made.
std::vector<LaneResult> fan_out(const std::vector<Lane>& lanes, std::FILE* progress);

std::string device_folder(const CudaDevice& device);  // its name in RUN

// `arguments` is the command line with `--device all`; each GPU's lane gets it with its own --device and --out.
std::vector<Lane> device_lanes(const std::vector<CudaDevice>& devices, const std::vector<std::string>& arguments,
                               const fs::path& run);

// What writes the tables of a run folder below RUNS whose process died before it could.
using WriteTables = std::function<void(const fs::path& folder)>;

// Sweeps all devices of the machine at once. Returns the worst exit code. Throws InvalidInput where there is none, or
// what the plan asks for is of one process.
int sweep_all_devices(const SweepPlan& plan, const WriteTables& write_tables);
// These ones, into RUN, which is made and locked. Throws std::runtime_error when RUN is the run folder of one device.
int sweep_devices(const std::vector<CudaDevice>& devices, const SweepRequest& request, const fs::path& run,
                  const WriteTables& write_tables);

}  // namespace noisefloor
