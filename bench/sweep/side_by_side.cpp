#include "bench/sweep/side_by_side.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <system_error>

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

int SideBySideResult::worst_exit_code() const {
  int worst = 0;
  for (const LaneResult& lane : lanes) worst = std::max(worst, lane.exit_code);
  return worst;
}

SideBySideResult run_side_by_side(const std::vector<Lane>& lanes, std::FILE* progress) {
  SideBySideResult result;
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

void end_as_told(int signal, const std::filesystem::path& run) {
  fmt::print(stderr, "stopped: the finished rows are in {}; the same command with --out resumes\n", run.string());
  std::fflush(nullptr);
  (void)std::signal(signal, SIG_DFL);
  (void)std::raise(signal);
  std::abort();  // where this signal was blocked
}

}  // namespace noisefloor
