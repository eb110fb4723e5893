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

struct FanOutResult {
  std::vector<LaneResult> lanes;
  int interrupted_by = 0;  // SIGINT, SIGTERM or SIGHUP: every lane was then told to end, and has

  int worst_exit_code() const;
};

// Runs all lanes to their end; one that fails does not stop the others. What they write to standard error goes to
// `progress` line by line behind the lane's name. Where this process is told to end, the lanes get SIGTERM, and SIGKILL
// ten seconds later; where it is killed, they get SIGTERM. Throws std::runtime_error when a process cannot be made.
FanOutResult fan_out(const std::vector<Lane>& lanes, std::FILE* progress);

// Ends this process by the signal that ended its lanes, and says that `run` can be resumed.
[[noreturn]] void end_as_told(int signal, const std::filesystem::path& run);

// "0-3,8" -> {0, 1, 2, 3, 8}, the kernel's way to write a set of CPUs. Empty where the text is anything else.
std::vector<int> parse_cpu_list(const std::string& text);
// Processes with the same CPUs share them out evenly, in order. All empty where one would get none.
std::vector<std::vector<int>> share_cpus(const std::vector<std::vector<int>>& near);

struct DeviceLane {
  CudaDevice device;
  std::string folder;  // its name in RUN
  Lane lane;
};

// `arguments` is the command line with `--device all`; each lane gets it with its own --device and --out, and its GPU's
// part of the CPUs.
std::vector<DeviceLane> device_lanes(const std::vector<CudaDevice>& devices, const std::vector<std::string>& arguments,
                                     const std::filesystem::path& run);

// Writes RUN/gpus.csv: folder,gpu,device,pci_bus_id,ending,exit_code,rows,ok,failed. `result` is null before the end:
// then the endings are blank.
void write_gpu_listing(const std::filesystem::path& run, const std::vector<DeviceLane>& lanes,
                       const FanOutResult* result);

// Makes RUN, locks it, calls `begun`, and sweeps all devices at once into it. Returns the worst exit code; does not
// return when the process was told to end: it ends by that signal. Throws std::runtime_error when RUN is the run folder
// of one device.
int sweep_all_devices(const std::vector<CudaDevice>& devices, const std::vector<std::string>& arguments,
                      const std::filesystem::path& run, const std::function<void()>& begun);

}  // namespace noisefloor
