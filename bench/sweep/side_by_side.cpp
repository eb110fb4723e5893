#include "bench/sweep/side_by_side.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <stdexcept>

namespace noisefloor {
namespace {

constexpr std::chrono::seconds kGrace{10};  // between asking a lane to end and ending it
constexpr int kCouldNotStart = 127;         // the shell's, for a program that is not there

int signal_pipe = -1;  // the handler's end

void on_signal(int number) {
  const auto byte = static_cast<unsigned char>(number);
  (void)!write(signal_pipe, &byte, 1);
}

std::runtime_error failed(const char* what) {
  return std::runtime_error(fmt::format("{} failed: {}", what, std::strerror(errno)));
}

struct PipeEnds {
  int read_end = -1, write_end = -1;
  PipeEnds() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw failed("pipe");
    read_end = ends[0];
    write_end = ends[1];
  }
};

// Handlers that write the signal's number into a pipe, for as long as this lives. A handler rather than a blocked
// signal: libraries have threads that do not block it.
class SignalCatcher {
 public:
  SignalCatcher() {
    (void)fcntl(pipe_.write_end, F_SETFL, O_NONBLOCK);
    signal_pipe = pipe_.write_end;
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    for (std::size_t i = 0; i < kSignals.size(); ++i) (void)sigaction(kSignals[i], &action, &before_[i]);
  }
  ~SignalCatcher() {
    restore();
    close(pipe_.read_end);
    close(pipe_.write_end);
  }
  void restore() const {
    for (std::size_t i = 0; i < kSignals.size(); ++i) (void)sigaction(kSignals[i], &before_[i], nullptr);
  }
  int descriptor() const { return pipe_.read_end; }
  sigset_t signals() const {
    sigset_t set;
    sigemptyset(&set);
    for (const int number : kSignals) sigaddset(&set, number);
    return set;
  }

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};
  PipeEnds pipe_;
  std::array<struct sigaction, kSignals.size()> before_{};
};

struct Process {
  pid_t pid = -1;
  int output = -1, errors = -1;  // -1 once at their end
  std::string line;              // of `errors`, not yet ended
};

Process start(const Lane& lane, const SignalCatcher& signals) {
  const PipeEnds output, errors;
  std::vector<char*> arguments;
  for (const std::string& argument : lane.arguments) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const int cpu : lane.cpus) CPU_SET(static_cast<unsigned>(cpu), &cpus);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const pid_t parent = getpid();
  // Until the child has its own handlers back, a signal must wait: ours would swallow it there.
  const sigset_t held = signals.signals();
  sigset_t mask;
  if (const int error = pthread_sigmask(SIG_BLOCK, &held, &mask); error != 0) {
    errno = error;
    throw failed("pthread_sigmask");
  }
  const pid_t pid = fork();
  const int fork_error = errno;
  if (pid != 0) (void)pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  if (pid < 0) {
    errno = fork_error;
    throw failed("fork");
  }
  if (pid == 0) {  // only what is safe between fork and exec of a program with threads
    signals.restore();
    (void)sigprocmask(SIG_SETMASK, &mask, nullptr);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(kCouldNotStart);
    if (!lane.cpus.empty()) (void)sched_setaffinity(0, sizeof cpus, &cpus);
    (void)dup2(nothing, STDIN_FILENO);
    (void)dup2(output.write_end, STDOUT_FILENO);
    (void)dup2(errors.write_end, STDERR_FILENO);
    execv(lane.program.c_str(), arguments.data());
    _exit(kCouldNotStart);
  }
  close(nothing);
  close(output.write_end);
  close(errors.write_end);
  return {pid, output.read_end, errors.read_end, {}};
}

// Whole lines of what has come so far; at the end also the last one that has none.
void print_lines(Process& process, const std::string& prefix, bool at_end, std::FILE* progress) {
  if (at_end && !process.line.empty()) process.line += '\n';
  std::size_t begin = 0;
  for (std::size_t end; (end = process.line.find('\n', begin)) != std::string::npos; begin = end + 1)
    fmt::print(progress, "{}{}", prefix, process.line.substr(begin, end - begin + 1));
  process.line.erase(0, begin);
  std::fflush(progress);
}

LaneResult wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status))
    return {2, fmt::format("killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status))), {}};
  const int code = WEXITSTATUS(status);
  return {std::min(code, 2), fmt::format("exit code {}", code), {}};
}

void tell(const std::vector<Process>& processes, int number) {
  for (const Process& process : processes)
    if (process.output >= 0 || process.errors >= 0) (void)kill(process.pid, number);
}

}  // namespace

int SideBySideResult::worst_exit_code() const {
  int worst = 0;
  for (const LaneResult& lane : lanes) worst = std::max(worst, lane.exit_code);
  return worst;
}

SideBySideResult run_side_by_side(const std::vector<Lane>& lanes, std::FILE* progress) {
  SideBySideResult result;
  result.lanes.resize(lanes.size());
  std::size_t width = 0;
  for (const Lane& lane : lanes) width = std::max(width, lane.name.size());

  const SignalCatcher signals;
  std::vector<Process> processes;
  for (const Lane& lane : lanes) {
    try {
      processes.push_back(start(lane, signals));
    } catch (...) {
      tell(processes, SIGTERM);
      throw;
    }
  }
  std::chrono::steady_clock::time_point deadline;
  bool killed = false;
  while (true) {
    std::vector<pollfd> watched = {{signals.descriptor(), POLLIN, 0}};
    std::vector<std::size_t> owners = {0};
    for (std::size_t i = 0; i < processes.size(); ++i)
      for (const int descriptor : {processes[i].output, processes[i].errors})
        if (descriptor >= 0) {
          watched.push_back({descriptor, POLLIN, 0});
          owners.push_back(i);
        }
    if (watched.size() == 1) break;
    constexpr int kTickMs = 200;
    const bool stopping = result.interrupted_by != 0;
    if (poll(watched.data(), watched.size(), stopping ? kTickMs : -1) < 0 && errno != EINTR) throw failed("poll");
    if (stopping && !killed && std::chrono::steady_clock::now() > deadline) {
      tell(processes, SIGKILL);
      killed = true;
    }
    if (unsigned char number = 0; watched[0].revents != 0 && read(signals.descriptor(), &number, 1) == 1 && !stopping) {
      result.interrupted_by = number;
      deadline = std::chrono::steady_clock::now() + kGrace;
      tell(processes, SIGTERM);
    }
    for (std::size_t i = 1; i < watched.size(); ++i) {
      if (watched[i].revents == 0) continue;
      Process& process = processes[owners[i]];
      const bool is_output = watched[i].fd == process.output;
      std::array<char, 65536> text{};
      const ssize_t count = read(watched[i].fd, text.data(), text.size());
      if (count < 0 && errno == EINTR) continue;
      if (count > 0) {
        (is_output ? result.lanes[owners[i]].output : process.line)
            .append(text.data(), static_cast<std::size_t>(count));
      } else {
        close(watched[i].fd);
        (is_output ? process.output : process.errors) = -1;
      }
      if (!is_output)
        print_lines(process, fmt::format("{:<{}} | ", lanes[owners[i]].name, width), count <= 0, progress);
    }
  }
  for (std::size_t i = 0; i < processes.size(); ++i) {
    LaneResult ended = wait_for(processes[i].pid);
    ended.output = std::move(result.lanes[i].output);
    result.lanes[i] = std::move(ended);
  }
  return result;
}

}  // namespace noisefloor
