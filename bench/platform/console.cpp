#include "bench/platform/console.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>
#include <string_view>

namespace noisefloor {
namespace {

struct Stream {
  int descriptor;
  bool carriage_return;  // may begin what is written
  bool dropped = false;  // closed from the start
  int error = 0;         // of the first text that could not be written
  std::FILE* before = nullptr;
};

Stream output{STDOUT_FILENO, false, false, 0, nullptr};
Stream errors{STDERR_FILENO, true, false, 0, nullptr};

// All of it counts as written: fmt::print() would throw, and a stream in error would keep it for the next try.
ssize_t write_text(void* cookie, const char* text, size_t size) {
  Stream& stream = *static_cast<Stream*>(cookie);
  std::string_view piece(text, size);
  std::string plain;
  if (stream.carriage_return && piece.starts_with('\r')) {
    plain = "\r";
    piece.remove_prefix(1);
  }
  for (const char c : piece)
    if (c == '\n' || c == '\t' || (static_cast<unsigned char>(c) >= 0x20 && c != 0x7F))
      plain += c;
    else
      plain += fmt::format("\\x{:02x}", c);
  if (stream.error != 0) return static_cast<ssize_t>(size);
  if (stream.dropped) {
    stream.error = EBADF;
    return static_cast<ssize_t>(size);
  }
  for (std::size_t done = 0; done < plain.size();) {
    const ssize_t count = write(stream.descriptor, plain.data() + done, plain.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      stream.error = count < 0 ? errno : EIO;
      break;
    }
    done += static_cast<std::size_t>(count);
  }
  return static_cast<ssize_t>(size);
}

void guard(Stream& stream, std::FILE*& file, int buffering) {
  std::FILE* const ours = fopencookie(&stream, "w", {nullptr, write_text, nullptr, nullptr});
  if (ours == nullptr) return;
  (void)std::setvbuf(ours, nullptr, buffering, buffering == _IONBF ? 0 : BUFSIZ);
  stream.before = file;
  file = ours;
}

}  // namespace

void guard_console() {
  output.dropped = fcntl(STDOUT_FILENO, F_GETFD) < 0;
  errors.dropped = fcntl(STDERR_FILENO, F_GETFD) < 0;
  // Closed by exec, so that a program that starts itself again finds what it was started with.
  constexpr int kFlags = O_RDWR | O_CLOEXEC;
  int descriptor = open("/dev/null", kFlags);
  while (descriptor >= 0 && descriptor <= STDERR_FILENO) descriptor = open("/dev/null", kFlags);
  if (descriptor >= 0) (void)close(descriptor);
  (void)std::signal(SIGPIPE, SIG_IGN);
  (void)std::signal(SIGXFSZ, SIG_IGN);
  guard(output, stdout, isatty(STDOUT_FILENO) != 0 ? _IOLBF : _IOFBF);
  guard(errors, stderr, _IONBF);
}

void words_to_stderr() {
  (void)std::fflush(stdout);
  output.descriptor = STDERR_FILENO;
}

int finish_console(int code) {
  (void)std::fflush(stdout);
  (void)std::cout.flush();
  if (output.before != nullptr && (std::fflush(output.before) != 0 || !std::cout) && output.error == 0)
    output.error = errno != 0 ? errno : EIO;
  if (output.error != 0 && output.error != EPIPE)
    fmt::print(stderr, "noisefloor: stdout could not be written: {}\n", std::strerror(output.error));
  return (output.error != 0 || errors.error != 0) && code == 0 ? 2 : code;
}

}  // namespace noisefloor
