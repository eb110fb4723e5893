#include "bench/measure/worker_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace noisefloor {
namespace {

constexpr int kNotFound = 127;                   // the shell's exit code for a program that is not there
constexpr std::size_t kMostComplaints = 4096;    // bytes kept of standard error: its last lines say what went wrong
constexpr std::size_t kLongestAnswer = 1 << 24;  // bytes
constexpr std::chrono::milliseconds kPatience{
    10000};                                      // between the end of its output and its own: a context is torn down
constexpr std::chrono::milliseconds kTick{500};  // between two looks whether it is there: a child may hold its output

// Above those of standard input, output and error, which this process may have closed: dup2() of a descriptor to itself
// would leave it to be closed by exec.
void lift(std::array<int, 2>& ends) {
  for (int& end : ends) {
    const int above = fcntl(end, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    close(std::exchange(end, above));
  }
}

struct Pipe {
  std::array<int, 2> ends{-1, -1};
  Pipe() {
    if (pipe2(ends.data(), O_CLOEXEC) != 0)
      throw WorkerGone(fmt::format("no pipe can be made: {}", std::strerror(errno)));
    lift(ends);
  }
  ~Pipe() {
    for (const int end : ends)
      if (end >= 0) close(end);
  }
  Pipe(const Pipe&) = delete;
  int take(std::size_t end) { return std::exchange(ends[end], -1); }
};

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& added) {
  std::vector<std::string> variables;
  const auto is_added = [&](const std::string& variable) {
    return std::any_of(added.begin(), added.end(),
                       [&](const auto& pair) { return variable.starts_with(pair.first + "="); });
  };
  for (char** variable = environ; *variable != nullptr; ++variable)
    if (!is_added(*variable)) variables.emplace_back(*variable);
  for (const auto& [name, value] : added) variables.push_back(name + "=" + value);
  return variables;
}

}  // namespace

WorkerProcess::WorkerProcess(const WorkerCommand& command) {
  Pipe output, errors;
  std::array<int, 2> input{};  // a socket: writing to a program that has ended must not raise SIGPIPE
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, input.data()) != 0)
    throw WorkerGone(fmt::format("no socket can be made: {}", std::strerror(errno)));
  lift(input);
  input_ = input[0];
  std::vector<std::string> arguments = command.arguments, variables = environment_with(command.environment);
  const std::vector<char*> argv = pointers_to(arguments), envp = pointers_to(variables);
  const pid_t parent = getpid();
  pid_ = fork();
  const int fork_error = errno;
  if (pid_ != 0) close(input[1]);
  if (pid_ < 0) {
    close(std::exchange(input_, -1));
    throw WorkerGone(fmt::format("no process can be made: {}", std::strerror(fork_error)));
  }
  if (pid_ == 0) {        // only what is safe between fork and exec of a program with threads
    (void)setpgid(0, 0);  // with its children; Ctrl-C is this program's to handle
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(kNotFound);
    (void)dup2(input[1], STDIN_FILENO);
    (void)dup2(output.ends[1], STDOUT_FILENO);
    (void)dup2(errors.ends[1], STDERR_FILENO);
    if (!command.folder.empty() && chdir(command.folder.c_str()) != 0) _exit(kNotFound);
    execvpe(argv.front(), argv.data(), envp.data());
    constexpr const char* kWhy = "the program cannot be run\n";
    (void)!write(STDERR_FILENO, kWhy, std::strlen(kWhy));
    _exit(kNotFound);
  }
  (void)setpgid(pid_, pid_);  // whichever of the two comes first
  output_ = output.take(0);
  errors_ = errors.take(0);
}

WorkerProcess::~WorkerProcess() {
  (void)end(std::chrono::milliseconds(0));
}

// Waits for the process, and kills it after `patience` with all that it started (compilers, an endless loop).
std::string WorkerProcess::end(std::chrono::milliseconds patience) {
  if (pid_ < 0) return {};
  constexpr std::chrono::milliseconds kStep{10};
  int status = 0;
  bool ended = false;
  for (auto waited = kTick * 0; !(ended = waitpid(pid_, &status, WNOHANG) == pid_) && waited < patience;
       waited += kTick)
    read_some(kStep);
  (void)kill(-pid_, SIGKILL);
  while (!ended && waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  read_some(kStep * 0);
  pid_ = -1;
  for (int* descriptor : {&input_, &output_, &errors_}) {
    if (*descriptor >= 0) close(*descriptor);
    *descriptor = -1;
  }
  if (!ended) return "closed its output";
  if (WIFSIGNALED(status))
    return fmt::format("was killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

bool WorkerProcess::has_ended() const {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_;
}

// With the last line that it wrote to standard error.
void WorkerProcess::fail(const std::string& how) {
  while (complaints_.ends_with('\n')) complaints_.pop_back();
  const std::string last = complaints_.substr(complaints_.rfind('\n') + 1);
  throw WorkerGone(last.empty() ? how : fmt::format("{}: {}", how, last));
}

void WorkerProcess::read_some(std::chrono::milliseconds patience) {
  std::array<pollfd, 2> watched{{{output_, POLLIN, 0}, {errors_, POLLIN, 0}}};  // those below 0 are passed over
  if (poll(watched.data(), watched.size(), static_cast<int>(patience.count())) <= 0) return;
  for (std::size_t i = 0; i < watched.size(); ++i) {
    if (watched[i].revents == 0) continue;
    int& descriptor = i == 0 ? output_ : errors_;
    std::string& text = i == 0 ? answers_ : complaints_;
    std::array<char, 65536> some{};
    const ssize_t count = read(descriptor, some.data(), some.size());
    if (count > 0)
      text.append(some.data(), static_cast<std::size_t>(count));
    else if (count == 0 || (errno != EINTR && errno != EAGAIN))
      close(std::exchange(descriptor, -1));
  }
  if (complaints_.size() > kMostComplaints) complaints_.erase(0, complaints_.size() - kMostComplaints);
}

void WorkerProcess::send(const std::string& line) {
  if (pid_ < 0) throw WorkerGone("is not running");
  const std::string text = line + "\n";
  for (std::size_t sent = 0; sent < text.size();) {
    const ssize_t count = ::send(input_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (count > 0) sent += static_cast<std::size_t>(count);
    if (count < 0 && errno != EINTR) fail(end(kPatience));
  }
}

std::string WorkerProcess::receive(double seconds) {
  if (pid_ < 0) throw WorkerGone("is not running");
  using Clock = std::chrono::steady_clock;
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  while (true) {
    if (const std::size_t line_end = answers_.find('\n'); line_end != std::string::npos) {
      std::string line = answers_.substr(0, line_end);
      answers_.erase(0, line_end + 1);
      return line;
    }
    if (output_ < 0 || has_ended()) {
      read_some(std::chrono::milliseconds(0));
      if (answers_.find('\n') == std::string::npos) fail(end(kPatience));
      continue;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    const bool endless = answers_.size() > kLongestAnswer;
    if (left.count() <= 0 || endless) {
      (void)end(std::chrono::milliseconds(0));
      fail(endless ? "gave an answer without an end" : fmt::format("gave no answer within {:g} s", seconds));
    }
    read_some(std::min(left, kTick));
  }
}

}  // namespace noisefloor
