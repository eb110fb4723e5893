#include "bench/platform/console.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <utility>

namespace noisefloor {
namespace {

struct GuardedStream {
  int descriptor;        // below 0: closed from the start
  bool carriage_return;  // may begin what is written
  int error = 0;         // of the first text that could not be written
  std::FILE* before = nullptr;
  PlainText plain;
};

GuardedStream output{STDOUT_FILENO, false, 0, nullptr, {}};
GuardedStream errors{STDERR_FILENO, true, 0, nullptr, {}};

// All of it counts as written: fmt::print() would throw, and a stream in error would keep it for the next try.
ssize_t write_text(void* cookie, const char* text, size_t size) {
  GuardedStream& stream = *static_cast<GuardedStream*>(cookie);
  std::string_view piece(text, size);
  std::string plain;
  if (stream.carriage_return && piece.starts_with('\r')) {
    plain = "\r";
    piece.remove_prefix(1);
  }
  plain += stream.plain.of(piece);
  if (stream.error != 0) return static_cast<ssize_t>(size);
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

void guard(GuardedStream& stream, std::FILE*& file, int buffering) {
  std::FILE* const ours = fopencookie(&stream, "w", {nullptr, write_text, nullptr, nullptr});
  if (ours == nullptr) return;
  (void)std::setvbuf(ours, nullptr, buffering, buffering == _IONBF ? 0 : BUFSIZ);
  stream.before = file;
  file = ours;
}

// How many bytes a character has that begins with `first`; 1: none of several does.
std::size_t length_of(unsigned char first) {
  return first >= 0xF0 && first <= 0xF4   ? 4
         : first >= 0xE0 && first <= 0xEF ? 3
         : first >= 0xC2 && first <= 0xDF ? 2
                                          : 1;
}

// Whether bytes that begin one are, as far as they go, a character that is no control, not overlong, no surrogate.
bool begins_a_character(std::string_view bytes) {
  const auto first = static_cast<unsigned char>(bytes[0]);
  if (length_of(first) == 1) return first == '\n' || first == '\t' || (first >= 0x20 && first < 0x7F);
  if (bytes.size() == 1) return true;
  if ((static_cast<unsigned char>(bytes.back()) & 0xC0) != 0x80) return false;
  const auto second = static_cast<unsigned char>(bytes[1]);
  const bool high = (first == 0xC2 || first == 0xE0) ? second >= 0xA0 : first != 0xF0 || second >= 0x90;
  return high && (first != 0xED || second <= 0x9F) && (first != 0xF4 || second <= 0x8F);
}

}  // namespace

std::string PlainText::of(std::string_view piece) {
  std::string out;
  const auto escape = [&out](std::string_view bytes) {
    for (const char c : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  };
  for (const char c : piece) {
    if (!pending_.empty() && (static_cast<unsigned char>(c) & 0xC0) != 0x80) escape(std::exchange(pending_, {}));
    pending_ += c;
    if (!begins_a_character(pending_))
      escape(std::exchange(pending_, {}));
    else if (pending_.size() == length_of(static_cast<unsigned char>(pending_[0])))
      out += std::exchange(pending_, {});
  }
  return out;
}

void guard_console() {
  for (GuardedStream* stream : {&output, &errors})
    if (fcntl(stream->descriptor, F_GETFD) < 0) stream->descriptor = -1;
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

void say_line(const std::string& text) {
  fmt::print(stderr, "{}\n", text);
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
