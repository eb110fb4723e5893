#include "bench/sweep/fan_out.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <stdexcept>
#include <system_error>

#include "bench/sweep/command_line.h"
#include "reports/run/csv.h"
#include "reports/run/files.h"
#include "reports/run/folder_lock.h"
#include "reports/run/run_folder.h"

namespace noisefloor {
namespace {

constexpr std::chrono::seconds kGrace{10};  // between asking a lane to end and ending it
constexpr int kWorst = 2;                   // of exit codes: it could not do what it was asked

int signal_pipe = -1;  // the handler's end

void on_signal(int number) {
  const auto byte = static_cast<unsigned char>(number);
  (void)!write(signal_pipe, &byte, 1);
}

// Handlers that write the signal's number into a pipe, for as long as this lives. A handler rather than a blocked
// signal: libraries have threads that do not block it. What this process ignores (nohup) stays ignored.
class SignalCatcher {
 public:
  SignalCatcher() {
    (void)fcntl(pipe_[1], F_SETFL, O_NONBLOCK);
    signal_pipe = pipe_[1];
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      (void)sigaction(kSignals[i], nullptr, &before_[i]);
      if (before_[i].sa_handler != SIG_IGN) (void)sigaction(kSignals[i], &action, nullptr);
    }
  }
  ~SignalCatcher() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) (void)sigaction(kSignals[i], &before_[i], nullptr);
  }
  SignalCatcher(const SignalCatcher&) = delete;
  int descriptor() const { return pipe_[0]; }

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};
  std::array<Descriptor, 2> pipe_ = make_pipe();
  std::array<struct sigaction, kSignals.size()> before_{};
};

// Whole lines of what has come so far; at the end also a last one that has none.
void print_lines(ChildOutput& errors, const std::string& prefix, std::FILE* progress) {
  if (errors.descriptor < 0 && !errors.text.empty()) errors.text += '\n';
  std::size_t begin = 0;
  for (std::size_t end; (end = errors.text.find('\n', begin)) != std::string::npos; begin = end + 1)
    fmt::print(progress, "{}{}", prefix, errors.text.substr(begin, end - begin + 1));
  errors.text.erase(0, begin);
  std::fflush(progress);
}

void tell(const std::vector<std::unique_ptr<ChildProcess>>& processes, int number) {
  for (const auto& process : processes) process->tell(number);
}

}  // namespace

int FanOutResult::worst_exit_code() const {
  int worst = 0;
  for (const LaneResult& lane : lanes) worst = std::max(worst, lane.exit_code);
  return worst;
}

FanOutResult fan_out(const std::vector<Lane>& lanes, std::FILE* progress) {
  FanOutResult result;
  std::size_t width = 0;
  for (const Lane& lane : lanes) width = std::max(width, lane.name.size());

  const SignalCatcher signals;
  std::vector<std::unique_ptr<ChildProcess>> processes;
  for (const Lane& lane : lanes) {
    try {
      processes.push_back(std::make_unique<ChildProcess>(lane.command, ChildRole::lane));
    } catch (...) {
      tell(processes, SIGTERM);
      throw;
    }
  }
  std::chrono::steady_clock::time_point deadline;
  bool killed = false;
  while (true) {
    std::vector<pollfd> watched = {{signals.descriptor(), POLLIN, 0}};
    for (const auto& process : processes)
      for (const ChildOutput* stream : {&process->output, &process->errors})
        watched.push_back({stream->descriptor, POLLIN, 0});  // those below 0 are passed over
    if (std::all_of(watched.begin() + 1, watched.end(), [](const pollfd& one) { return one.fd < 0; })) break;
    constexpr int kTickMs = 200;
    const bool stopping = result.interrupted_by != 0;
    if (poll(watched.data(), watched.size(), stopping ? kTickMs : -1) < 0) {
      if (errno == EINTR) continue;
      throw std::system_error(errno, std::generic_category(), "poll failed");
    }
    if (stopping && !killed && std::chrono::steady_clock::now() > deadline) {
      tell(processes, SIGKILL);
      killed = true;
    }
    if (unsigned char number = 0; watched[0].revents != 0 && read(signals.descriptor(), &number, 1) == 1 && !stopping) {
      result.interrupted_by = number;
      deadline = std::chrono::steady_clock::now() + kGrace;
      tell(processes, SIGTERM);
    }
    for (std::size_t i = 0; i < processes.size(); ++i) {
      if (watched[2 * i + 1].revents != 0) processes[i]->output.read_some();
      if (watched[2 * i + 2].revents == 0) continue;
      processes[i]->errors.read_some();
      print_lines(processes[i]->errors, fmt::format("{:<{}} | ", lanes[i].name, width), progress);
    }
  }
  for (const auto& process : processes) {
    const int status = process->wait();
    const int code = WIFSIGNALED(status) ? kWorst : std::min(WEXITSTATUS(status), kWorst);
    result.lanes.push_back({code, ending_words(status), std::move(process->output.text)});
    // Of a terminal's signal to all the lane may end first.
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGINT && result.interrupted_by == 0) result.interrupted_by = SIGINT;
  }
  // What came while a lane that had closed its pipes was still ending.
  pollfd late = {signals.descriptor(), POLLIN, 0};
  if (unsigned char number = 0;
      result.interrupted_by == 0 && poll(&late, 1, 0) > 0 && read(signals.descriptor(), &number, 1) == 1)
    result.interrupted_by = number;
  return result;
}

// ---- the GPUs of a machine

namespace {

std::string first_line(const std::string& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

}  // namespace

std::vector<int> parse_cpu_list(const std::string& text) {
  std::vector<int> cpus;
  const char* place = text.data();
  const char* const end = place + text.size();
  const auto number = [&](int& value) {
    const auto parsed = std::from_chars(place, end, value);
    place = parsed.ptr;
    return parsed.ec == std::errc() && value >= 0 && value < CPU_SETSIZE;
  };
  while (place != end) {
    int first = 0, last = 0;
    if (!number(first)) return {};
    last = first;
    if (place != end && *place == '-' && (++place, !number(last))) return {};
    if (last < first || (place != end && *place++ != ',')) return {};
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<std::vector<int>> share_cpus(const std::vector<std::vector<int>>& near) {
  std::vector<std::vector<int>> shares(near.size());
  for (std::size_t i = 0; i < near.size(); ++i) {
    const auto sharers = static_cast<std::size_t>(std::count(near.begin(), near.end(), near[i]));
    const auto before =
        static_cast<std::size_t>(std::count(near.begin(), near.begin() + static_cast<std::ptrdiff_t>(i), near[i]));
    const std::size_t begin = near[i].size() * before / sharers, end = near[i].size() * (before + 1) / sharers;
    if (begin == end) return std::vector<std::vector<int>>(near.size());
    shares[i].assign(near[i].begin() + static_cast<std::ptrdiff_t>(begin),
                     near[i].begin() + static_cast<std::ptrdiff_t>(end));
  }
  return shares;
}

namespace {

// The CPUs near a PCI device ("0000:17:00.0"; those of its NUMA node), that this process may use, with the two threads
// of a core beside each other. Empty where the kernel does not say.
std::vector<int> cpus_near(const std::string& pci_bus_id) {
  std::string place = pci_bus_id;
  std::transform(place.begin(), place.end(), place.begin(), [](unsigned char c) { return std::tolower(c); });
  std::vector<int> cpus = parse_cpu_list(first_line("/sys/bus/pci/devices/" + place + "/local_cpulist"));
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return {};
  std::erase_if(cpus, [&](int cpu) { return !CPU_ISSET(static_cast<unsigned>(cpu), &allowed); });
  std::map<int, int> core;  // the first thread of the CPU's core
  for (const int cpu : cpus) {
    const auto siblings =
        parse_cpu_list(first_line(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu)));
    core[cpu] = siblings.empty() ? cpu : siblings.front();
  }
  std::stable_sort(cpus.begin(), cpus.end(), [&](int a, int b) { return core[a] < core[b]; });
  return cpus;
}

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

void print_results(const std::filesystem::path& run, const std::vector<DeviceLane>& lanes, const FanOutResult& result) {
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

void end_as_told(int signal, const std::filesystem::path& run) {
  fmt::print(stderr, "stopped: the finished rows are in {}; the same command with --out resumes\n", run.string());
  std::fflush(nullptr);
  (void)std::signal(signal, SIG_DFL);
  (void)std::raise(signal);
  std::abort();  // where this signal was blocked
}

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
                       const FanOutResult* result) {
  std::string text = "folder,gpu,device,pci_bus_id,ending,exit_code,rows,ok,failed\n";
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const Counts counts = result == nullptr ? Counts{} : count_rows(run / lanes[i].folder);
    text += fmt::format("{},{},{},{},", lanes[i].folder, lanes[i].device.index, quote_csv(lanes[i].device.name),
                        quote_csv(lanes[i].device.pci_bus_id));
    text += result == nullptr ? std::string(",,,,\n")
                              : fmt::format("{},{},{},{},{}\n", quote_csv(result->lanes[i].ending),
                                            result->lanes[i].exit_code, counts.rows, counts.ok, counts.failed);
  }
  write_atomically(run / "gpus.csv", text);
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
  const FanOutResult result = fan_out(programs, stderr);
  write_gpu_listing(run, lanes, &result);
  print_results(run, lanes, result);
  if (result.interrupted_by != 0) end_as_told(result.interrupted_by, run);
  return result.worst_exit_code();
}

}  // namespace noisefloor
