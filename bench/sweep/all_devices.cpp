#include "bench/sweep/all_devices.h"

#include <fmt/format.h>

#include <stdexcept>

#include "bench/sweep/command_line.h"
#include "bench/sweep/cpu_sets.h"
#include "reports/run/csv.h"
#include "reports/run/files.h"
#include "reports/run/folder_lock.h"
#include "reports/run/run_folder.h"

namespace noisefloor {
namespace {

struct Counts {
  std::size_t rows = 0, ok = 0, failed = 0;
};

Counts count_rows(const std::filesystem::path& folder) {
  Counts counts;
  if (!std::filesystem::exists(folder / "sweep.csv")) return counts;
  for (const SweepRow& row : read_sweep_csv(folder / "sweep.csv")) {
    ++counts.rows;
    if (row.status == Outcome::ok) ++counts.ok;
    if (is_failure(row)) ++counts.failed;
  }
  return counts;
}

void print_results(const std::filesystem::path& run, const std::vector<DeviceLane>& lanes,
                   const SideBySideResult& result) {
  for (std::size_t i = 0; i < lanes.size(); ++i)
    if (!result.lanes[i].output.empty())
      fmt::print("== gpu{}: {} ({})\n{}\n", lanes[i].device.index, lanes[i].device.name, lanes[i].device.pci_bus_id,
                 result.lanes[i].output);
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const Counts counts = count_rows(run / lanes[i].folder);
    fmt::print("gpu{:<3} {:<28} {:>5} rows, {:>5} ok, {} failed; {}; {}\n", lanes[i].device.index, lanes[i].device.name,
               counts.rows, counts.ok, counts.failed, result.lanes[i].ending, (run / lanes[i].folder).string());
  }
  fmt::print("run folders of {} GPUs: {}\n", lanes.size(), run.string());
}

}  // namespace

std::vector<DeviceLane> device_lanes(const std::vector<CudaDevice>& devices, const std::vector<std::string>& arguments,
                                     const std::filesystem::path& run) {
  const std::vector<std::string> shared = without_options(arguments, {"--device", "--out"});
  std::vector<std::vector<int>> near;
  for (const CudaDevice& device : devices) near.push_back(cpus_near(device.pci_bus_id));
  const auto cpus = share_cpus(near);
  std::vector<DeviceLane> lanes;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const std::string index = std::to_string(devices[i].index);
    const std::string folder = "gpu" + index + "-" + device_slug(devices[i].name);
    std::vector<std::string> own = shared;
    own.insert(own.end(), {"--device", index, "--out", (run / folder).string()});
    lanes.push_back({devices[i], folder, {"gpu" + index, {std::move(own), {}, {}, "/proc/self/exe", cpus[i]}}});
  }
  return lanes;
}

void write_gpu_listing(const std::filesystem::path& run, const std::vector<DeviceLane>& lanes,
                       const SideBySideResult* result) {
  std::string text = "folder,gpu,device,pci_bus_id,ending,exit_code,rows,ok,failed\n";
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const Counts counts = result == nullptr ? Counts{} : count_rows(run / lanes[i].folder);
    text += fmt::format("{},{},{},{},", lanes[i].folder, lanes[i].device.index, quote_csv(lanes[i].device.name),
                        quote_csv(lanes[i].device.pci_bus_id));
    text += result == nullptr ? std::string(",,,,\n")
                              : fmt::format("{},{},{},{},{}\n", quote_csv(result->lanes[i].ending),
                                            result->lanes[i].exit_code, counts.rows, counts.ok, counts.failed);
  }
  write_atomically(run / kGpuListing, text);
}

int sweep_all_devices(const std::vector<CudaDevice>& devices, const std::vector<std::string>& arguments,
                      const std::filesystem::path& run, const std::function<void()>& begun) {
  std::error_code error;
  std::filesystem::create_directories(follow_links(run), error);
  if (error) throw std::runtime_error(fmt::format("{}: cannot be made: {}", run.string(), error.message()));
  const FolderLock lock(run);
  if (std::filesystem::exists(run / "sweep.csv"))
    throw std::runtime_error(
        fmt::format("{}: is the run folder of one device; give another --out for --device all", run.string()));
  begun();
  const auto lanes = device_lanes(devices, arguments, run);
  write_gpu_listing(run, lanes, nullptr);
  std::vector<Lane> programs;
  for (const DeviceLane& lane : lanes) programs.push_back(lane.lane);
  const SideBySideResult result = run_side_by_side(programs, stderr);
  write_gpu_listing(run, lanes, &result);
  print_results(run, lanes, result);
  if (result.interrupted_by != 0) end_as_told(result.interrupted_by, run);
  return result.worst_exit_code();
}

}  // namespace noisefloor
