// A sweep of every GPU of the machine: one process each, each with a run folder of its own below one folder.
//
//   RUN/gpu0-nvidia-h200/   a complete run folder, as of `sweep --device 0`
//   RUN/gpu1-nvidia-h200/
//   RUN/gpus.csv            which GPU each of them is of, and how its sweep ended
//
// The layout is the same with one GPU. The number is CUDA's.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "bench/platform/platform.h"
#include "bench/sweep/side_by_side.h"

namespace noisefloor {

inline constexpr const char* kGpuListing = "gpus.csv";

struct DeviceLane {
  CudaDevice device;
  std::string folder;  // its name in RUN
  Lane lane;
};

// `arguments` is the command line with `--device all`; each lane gets it with its own --device and --out.
std::vector<DeviceLane> device_lanes(const std::vector<CudaDevice>& devices, const std::vector<std::string>& arguments,
                                     const std::filesystem::path& run);

// Writes RUN/gpus.csv: folder,gpu,device,pci_bus_id,ending,exit_code,rows,ok,failed. `result` is null before the end:
// then the endings are blank.
void write_gpu_listing(const std::filesystem::path& run, const std::vector<DeviceLane>& lanes,
                       const SideBySideResult* result);

// Makes RUN, locks it, calls `begun`, and sweeps all devices side by side into it. Returns the worst exit code; does
// not return when the process was told to end. Throws std::runtime_error when RUN is the run folder of one device.
int sweep_all_devices(const std::vector<CudaDevice>& devices, const std::vector<std::string>& arguments,
                      const std::filesystem::path& run, const std::function<void()>& begun);

}  // namespace noisefloor
