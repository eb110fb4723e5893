// A program that this one starts: its pipes, how it ends, and that it does not outlive this one. Standard input, output
// and error of this one are open (console.h): a pipe with one of their numbers would be closed by exec.
#pragma once

#include <sys/types.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

namespace noisefloor {

struct ChildCommand {
  std::vector<std::string> arguments;                                 // argv[0] first
  std::vector<std::pair<std::string, std::string>> environment = {};  // beside this process's own
  std::string folder = {};                                            // to run in; empty: where this process does
  std::string program = {};                                           // empty: argv[0], looked for on PATH
};

enum class ChildRole {
  lane,    // reads nothing, and gets this process's Ctrl-C; SIGTERM when this process dies
  worker,  // reads what it is sent; killed with all that it started when this process dies, however it does
};

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() { reset(); }
  void reset();
  operator int() const { return number_; }  // below 0: closed

 private:
  int number_ = -1;
};

std::vector<char*> pointers_to(std::vector<std::string>& texts);  // and a null behind them: as exec and main take them

std::array<Descriptor, 2> make_pipe();  // to read, to write; throws std::system_error

struct ChildOutput {
  Descriptor descriptor;  // closed once the end was read
  std::string text;       // that has come
  void read_some();       // one read(): waits where nothing is there
};

class ChildProcess {
 public:
  // Throws std::system_error when no process can be made. A program that cannot be run ends with exit code 127.
  ChildProcess(const ChildCommand& command, ChildRole role);
  ~ChildProcess() { (void)end(); }
  ChildProcess(const ChildProcess&) = delete;

  Descriptor input;  // a worker's: a socket, so that writing to a program that has ended raises no SIGPIPE
  ChildOutput output, errors;

  void tell(int signal) const;  // the process alone
  bool has_ended() const;       // whether wait() would return at once

  // Each returns waitpid()'s status. end() kills it first: of a worker, with all that it started.
  int wait();
  int end();

 private:
  pid_t pid_ = -1, guard_ = -1;
  Descriptor lifeline_;
  int status_ = 0;
};

std::string ending_words(int status);  // "exit code 1", "killed by signal 9 (Killed)"

}  // namespace noisefloor
