#include "bench/sweep/fan_out.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "bench/platform/refusal.h"
#include "reports/run/csv.h"
#include "reports/run/files.h"
#include "reports/run/folder_lock.h"
#include "reports/run/run_folder.h"

namespace noisefloor {
namespace {

constexpr int kWorst = 2;  // of exit codes: it could not do what it was asked

// Whole lines of what has come so far; at the end also a last one that has none.
void print_lines(ChildOutput& errors, const std::string& prefix, std::FILE* progress) {
  if (errors.descriptor < 0 && !errors.text.empty()) errors.text += '\n';
  std::size_t begin = 0;
  for (std::size_t end; (end = errors.text.find('\n', begin)) != std::string::npos; begin = end + 1)
    fmt::print(progress, "{}{}", prefix, errors.text.substr(begin, end - begin + 1));
  errors.text.erase(0, begin);
  std::fflush(progress);
}

// `results` is empty before the end.
void write_gpu_listing(const fs::path& run, const std::vector<CudaDevice>& devices,
                       const std::vector<LaneResult>& results) {
  std::string text = "folder,gpu,device,pci_bus_id,ending,exit_code\n";
  for (std::size_t i = 0; i < devices.size(); ++i)
    text +=
        csv_row(device_folder(devices[i]), devices[i].index, devices[i].name, devices[i].pci_bus_id,
                results.empty() ? "" : results[i].ending, results.empty() ? "" : std::to_string(results[i].exit_code));
  write_atomically(run / "gpus.csv", text);
}

}  // namespace

std::vector<LaneResult> fan_out(const std::vector<Lane>& lanes, std::FILE* progress) {
  std::size_t width = 0;
  for (const Lane& lane : lanes) width = std::max(width, lane.name.size());
  std::vector<std::unique_ptr<ChildProcess>> processes;  // killed where one of them cannot be made
  for (const Lane& lane : lanes) processes.push_back(std::make_unique<ChildProcess>(lane.command, ChildRole::lane));
  while (true) {
    std::vector<pollfd> watched;
    for (const auto& process : processes)
      for (const ChildOutput* stream : {&process->output, &process->errors})
        watched.push_back({stream->descriptor, POLLIN, 0});  // those below 0 are passed over
    if (std::ranges::all_of(watched, [](const pollfd& one) { return one.fd < 0; })) break;
    if (poll(watched.data(), watched.size(), -1) < 0) {
      if (errno == EINTR) continue;
      throw std::system_error(errno, std::generic_category(), "poll failed");
    }
    for (std::size_t i = 0; i < processes.size(); ++i) {
      if (watched[2 * i].revents != 0) processes[i]->output.read_some();
      if (watched[2 * i + 1].revents == 0) continue;
      processes[i]->errors.read_some();
      print_lines(processes[i]->errors, fmt::format("{:<{}} | ", lanes[i].name, width), progress);
    }
  }
  std::vector<LaneResult> results;
  for (const auto& process : processes) {
    const int status = process->wait();
    const int code = WIFSIGNALED(status) ? kWorst : std::min(WEXITSTATUS(status), kWorst);
    results.push_back({code, ending_words(status), std::move(process->output.text)});
  }
  return results;
}

std::string device_folder(const CudaDevice& device) {
  return fmt::format("gpu{}-{}", device.index, device_slug(device.name));
}

std::vector<Lane> device_lanes(const std::vector<CudaDevice>& devices, const std::vector<std::string>& arguments,
                               const fs::path& run) {
  const std::vector<std::string> shared = without_options(arguments, {"--device", "--out"});
  // Each has its share of the cores, for what is computed on the host.
  const std::size_t threads = std::max<std::size_t>(1, std::thread::hardware_concurrency() / devices.size());
  constexpr const char* kThreads = "OMP_NUM_THREADS";
  std::vector<Lane> lanes;
  for (const CudaDevice& device : devices) {
    const std::string index = std::to_string(device.index);
    ChildCommand command{shared};
    command.arguments.insert(command.arguments.end(),
                             {"--device", index, "--out", (run / device_folder(device)).string()});
    if (std::getenv(kThreads) == nullptr) command.environment = {{kThreads, std::to_string(threads)}};
    command.program = "/proc/self/exe";
    lanes.push_back({"gpu" + index, std::move(command)});
  }
  return lanes;
}

int sweep_all_devices(const SweepPlan& plan, const WriteTables& write_tables) {
  if (!plan.flags.format.empty() || !plan.flags.out.empty())
    throw InvalidInput(
        "--device all: every GPU has a process of its own, which would write the same --benchmark_format or "
        "--benchmark_out; leave these out, or sweep one --device at a time");
  std::string why;
  auto devices = list_cuda_devices(why);
  std::erase_if(devices, [&](const CudaDevice& device) {  // an older GPU beside the others
    if (device.unserved.empty()) return false;
    why = device.unserved;
    fmt::print(stderr, "device {} is left out: {}\n", device.index, device.unserved);
    return true;
  });
  if (devices.empty()) throw refusal("--device all: {}", why);
  return sweep_devices(devices, plan.request, run_folder_of(plan.request, "all GPUs"), write_tables);
}

int sweep_devices(const std::vector<CudaDevice>& devices, const SweepRequest& request, const fs::path& run,
                  const WriteTables& write_tables) {
  std::error_code error;
  fs::create_directories(follow_links(run), error);
  if (error) throw failure("{}: cannot be made: {}", run.string(), error.message());
  const FolderLock lock(run);
  if (fs::exists(run / "sweep.csv"))
    throw failure("{}: is the run folder of one device; give another --out for --device all", run.string());
  if (request.below_runs()) note_unfinished(run, command_text(request));
  write_gpu_listing(run, devices, {});
  const auto lanes = device_lanes(devices, request.command_line, run);
  const std::vector<LaneResult> results = fan_out(lanes, stderr);
  write_gpu_listing(run, devices, results);
  int worst = 0;
  std::string endings;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const auto& [code, ending, output] = results[i];
    if (!output.empty())
      fmt::print("== gpu{}: {} ({})\n{}\n", devices[i].index, devices[i].name, devices[i].pci_bus_id, output);
    endings += fmt::format("gpu{:<3} {:<28} {}; {}\n", devices[i].index, devices[i].name, ending,
                           (run / device_folder(devices[i])).string());
    worst = std::max(worst, code);
    if (!request.below_runs() || code < kWorst) continue;
    const auto folder = run / device_folder(devices[i]);
    try {
      if (fs::exists(folder / "sweep.csv")) write_tables(folder);
    } catch (const std::runtime_error& wrong) {
      fmt::print(stderr, "{}\n", wrong.what());
    }
  }
  if (request.below_runs() && worst < kWorst) note_finished(run);
  if (worst == kWorst)
    fmt::print(stderr, "the finished rows are in {}; the same command with --out resumes\n", run.string());
  fmt::print("{}run folders of {} GPUs: {}\n", endings, devices.size(), run.string());
  return worst;
}

}  // namespace noisefloor
