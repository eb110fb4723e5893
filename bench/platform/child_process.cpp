#include "bench/platform/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <system_error>

#include "bench/platform/process_limits.h"

namespace noisefloor {
namespace {

constexpr int kCouldNotStart = 127;  // the shell's, for a program that is not there

using Pair = std::array<Descriptor, 2>;

int checked(int result, const char* what) {
  if (result < 0)
    throw std::system_error(errno, std::generic_category(),
                            fmt::format("no {} can be made{}", what, limit_behind(errno)));
  return result;
}

Pair make_socket() {
  std::array<int, 2> ends{};
  checked(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), "socket");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
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

struct Placing {
  std::array<int, 3> standard;  // input, output, error
  int dies_with_us;             // the signal that it gets when this thread ends
  pid_t group = -1;             // to join; -1: this process's
};

pid_t spawn(const ChildCommand& command, const Placing& placing) {
  std::vector<std::string> arguments = command.arguments, variables = environment_with(command.environment);
  const std::vector<char*> argv = pointers_to(arguments), envp = pointers_to(variables);
  const char* program = command.program.empty() ? argv.front() : command.program.c_str();
  const pid_t parent = getpid();
  // Until exec this process's handlers stand in the child, too: a signal waits until they are gone.
  sigset_t all, mask;
  sigfillset(&all);
  if (const int error = pthread_sigmask(SIG_SETMASK, &all, &mask); error != 0)
    throw std::system_error(error, std::generic_category(), "no signal can be held");
  const pid_t pid = fork();
  const int fork_error = errno;
  if (pid != 0) (void)pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  if (pid < 0)
    throw std::system_error(fork_error, std::generic_category(), "no process can be made" + limit_behind(fork_error));
  if (pid != 0) return pid;
  // Only what is safe between fork and exec of a program with threads.
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    action.sa_handler = SIG_DFL;
    (void)sigaction(number, &action, nullptr);
  }
  (void)sigprocmask(SIG_SETMASK, &mask, nullptr);
  if (placing.group >= 0) (void)setpgid(0, placing.group);
  (void)prctl(PR_SET_PDEATHSIG, placing.dies_with_us);
  if (getppid() != parent) _exit(kCouldNotStart);
  for (int i = 0; i < 3; ++i) (void)dup2(placing.standard[static_cast<std::size_t>(i)], i);
  if (command.folder.empty() || chdir(command.folder.c_str()) == 0) execvpe(program, argv.data(), envp.data());
  constexpr const char* kWhy = "the program cannot be run\n";
  (void)!write(STDERR_FILENO, kWhy, std::strlen(kWhy));
  _exit(kCouldNotStart);
}

int reap(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::array<Descriptor, 2> make_pipe() {
  std::array<int, 2> ends{};
  checked(pipe2(ends.data(), O_CLOEXEC), "pipe");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

void Descriptor::reset() {
  if (number_ >= 0) close(number_);
  number_ = -1;
}

void ChildOutput::read_some() {
  std::array<char, 65536> some{};
  const ssize_t count = read(descriptor, some.data(), some.size());
  if (count > 0)
    text.append(some.data(), static_cast<std::size_t>(count));
  else if (count == 0 || (errno != EINTR && errno != EAGAIN))
    descriptor.reset();
}

ChildProcess::ChildProcess(const ChildCommand& command, ChildRole role) {
  const Descriptor nothing(checked(open("/dev/null", O_RDWR | O_CLOEXEC), "descriptor"));
  Pair out = make_pipe(), complaints = make_pipe();
  if (role == ChildRole::lane) {
    pid_ = spawn(command, {{nothing, out[1], complaints[1]}, SIGTERM});
  } else {
    // A shell that leads the worker's process group, and kills it when the other end of its input is gone: no signal
    // tells a program's grandchildren that it was killed.
    Pair in = make_socket(), lifeline = make_pipe();
    const ChildCommand shell{{"/bin/sh", "-c", "read -r _; kill -KILL 0"}};
    guard_ = spawn(shell, {{lifeline[0], nothing, nothing}, 0, 0});
    (void)setpgid(guard_, guard_);  // whichever of the two comes first
    lifeline_ = std::move(lifeline[1]);
    try {
      pid_ = spawn(command, {{in[1], out[1], complaints[1]}, SIGKILL, guard_});
    } catch (...) {
      (void)end();
      throw;
    }
    (void)setpgid(pid_, guard_);
    input = std::move(in[0]);
  }
  output.descriptor = std::move(out[0]);
  errors.descriptor = std::move(complaints[0]);
}

void ChildProcess::tell(int signal) const {
  if (pid_ >= 0) (void)kill(pid_, signal);
}

bool ChildProcess::has_ended() const {
  siginfo_t info{};
  return pid_ < 0 ||
         (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_);
}

int ChildProcess::wait() {
  if (pid_ >= 0) status_ = reap(std::exchange(pid_, -1));
  return status_;
}

int ChildProcess::end() {
  tell(SIGKILL);
  if (guard_ >= 0) {
    (void)kill(-guard_, SIGKILL);
    (void)reap(std::exchange(guard_, -1));
  }
  return wait();
}

std::string ending_words(int status) {
  if (!WIFSIGNALED(status)) return fmt::format("exit code {}", WEXITSTATUS(status));
  return fmt::format("killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
}

}  // namespace noisefloor
