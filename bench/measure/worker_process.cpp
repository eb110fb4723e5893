#include "bench/measure/worker.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "bench/measure/case_progress.h"
#include "bench/measure/timing.h"
#include "bench/platform/console.h"

namespace noisefloor {
namespace {

constexpr std::size_t kMostComplaints = 4096;    // bytes kept of standard error: its last lines say what went wrong
constexpr std::size_t kLongestAnswer = 1 << 24;  // bytes
constexpr std::chrono::milliseconds kPatience{
    10000};                                      // between the end of its output and its own: a context is torn down
constexpr std::chrono::milliseconds kTick{500};  // between two looks whether it is there: a child may hold its output

}  // namespace

// Waits for the process, and kills it after `patience` with all that it started (compilers, an endless loop).
std::string Worker::end(std::chrono::milliseconds patience) {
  constexpr std::chrono::milliseconds kStep{10};
  for (auto waited = kTick * 0; !child_->has_ended() && waited < patience; waited += kTick) read_some(kStep);
  const bool ended = child_->has_ended();
  const int status = child_->end();
  read_some(kStep * 0);
  child_.reset();
  if (!ended) return "closed its output";
  return (WIFSIGNALED(status) ? "was " : "ended with ") + ending_words(status);
}

// With the last line that it wrote to standard error.
void Worker::fail(const std::string& how) {
  while (complaints_.ends_with('\n')) complaints_.pop_back();
  const std::string last = complaints_.substr(complaints_.rfind('\n') + 1);
  throw WorkerGone(last.empty() ? how : fmt::format("{}: {}", how, last));
}

void Worker::read_some(std::chrono::milliseconds patience) {
  const std::array<ChildOutput*, 2> outputs{&child_->output, &child_->errors};
  std::array<pollfd, 2> watched{};  // those below 0 are passed over
  for (std::size_t i = 0; i < 2; ++i) watched[i] = {outputs[i]->descriptor, POLLIN, 0};
  if (poll(watched.data(), watched.size(), static_cast<int>(patience.count())) <= 0) return;
  for (std::size_t i = 0; i < 2; ++i)
    if (watched[i].revents != 0) outputs[i]->read_some();
  complaints_ += std::exchange(child_->errors.text, {});
  if (complaints_.size() > kMostComplaints) complaints_.erase(0, complaints_.size() - kMostComplaints);
}

void Worker::send(const std::string& line) {
  const std::string text = line + "\n";
  for (std::size_t sent = 0; sent < text.size();) {
    const ssize_t count = ::send(child_->input, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (count > 0) sent += static_cast<std::size_t>(count);
    if (count < 0 && errno != EINTR) fail(end(kPatience));
  }
}

std::string Worker::receive_line(double seconds) {
  std::string& answers = child_->output.text;
  const double begin = steady_seconds();
  for (double due = options_.silent_seconds;;) {
    if (const std::size_t line_end = answers.find('\n'); line_end != std::string::npos) {
      std::string line = answers.substr(0, line_end);
      answers.erase(0, line_end + 1);
      return line;
    }
    if (child_->output.descriptor < 0 || child_->has_ended()) {
      read_some(std::chrono::milliseconds(0));
      if (answers.find('\n') == std::string::npos) fail(end(kPatience));
      continue;
    }
    const double waited = steady_seconds() - begin;
    const bool endless = answers.size() > kLongestAnswer;
    if (waited >= seconds || endless) {
      (void)end(std::chrono::milliseconds(0));
      fail(endless ? "gave an answer without an end" : fmt::format("gave no answer within {:g} s", seconds));
    }
    if (waited >= due) {
      say_line(
          fmt::format("{}: no answer for {}, of {} that it has", name_, duration_text(waited), duration_text(seconds)));
      due += options_.silent_seconds;
    }
    read_some(
        std::min(kTick, std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(seconds - waited))));
  }
}

}  // namespace noisefloor
