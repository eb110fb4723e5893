#include "bench/commands/training_guard.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>

#include "bench/commands/commands.h"
#include "reports/run/files.h"

namespace noisefloor {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
constexpr const char* kProcess = "process ";         // a lock's text, before the number
constexpr std::int64_t kOneRequest = 1'000'000'000;  // ns; timeout(1) signals a process and its group
volatile sig_atomic_t came = 0;
std::atomic<std::int64_t> came_at = 0;
static_assert(std::atomic<std::int64_t>::is_always_lock_free);  // in a handler

void note_signal(int number) {
  timespec now{};
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t at = std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  if (came == 0) {
    came_at = at;
    came = number;
  } else if (at - came_at > kOneRequest) {
    (void)std::signal(number, SIG_DFL);
    (void)std::raise(number);  // delivered behind this handler
  }
}

std::string writer_of(int descriptor) {
  std::array<char, 64> text{};
  const ssize_t count = pread(descriptor, text.data(), text.size(), 0);
  return std::string(text.data(), count > 0 ? static_cast<std::size_t>(count) : 0);
}

}  // namespace

CheckpointLock::CheckpointLock(const fs::path& checkpoint) : file_(checkpoint.string() + ".lock") {
  while (true) {
    require_regular_or_absent(file_);
    descriptor_ = open(file_.c_str(), O_CREAT | O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
    if (descriptor_ < 0) throw refusal("--checkpoint: {} cannot be written: {}", file_.string(), std::strerror(errno));
    const int why = flock(descriptor_, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    if (why == 0 && is_still(file_, descriptor_)) break;
    const std::string writer = writer_of(descriptor_);
    close(descriptor_);  // without an error: the one before removed it between opening and locking
    if (why == EWOULDBLOCK)
      throw refusal("--checkpoint {}: another training writes it{}; wait for its end, or name another file",
                    checkpoint.string(), writer.empty() ? "" : " (" + writer + ")");
    if (why != 0 && why != EINTR)
      throw refusal("--checkpoint: {} cannot be locked: {}; name a file on a file system with locks", file_.string(),
                    std::strerror(why));
  }
  if (const std::string writer = writer_of(descriptor_); !writer.empty() && !writer.starts_with(kProcess)) {
    close(descriptor_);
    throw refusal("--checkpoint {}: {} is there, and no training's; remove it, or name another file",
                  checkpoint.string(), file_.string());
  }
  const std::string us = fmt::format("{}{}", kProcess, getpid());
  // A full disk: the lock holds without the name.
  if (ftruncate(descriptor_, 0) == 0) (void)!pwrite(descriptor_, us.data(), us.size(), 0);
}

CheckpointLock::~CheckpointLock() {
  if (is_still(file_, descriptor_)) (void)unlink(file_.c_str());  // not what another wrote in its place
  close(descriptor_);
}

Interruption::Interruption() {
  came = 0;
  for (std::size_t i = 0; i < before_.size(); ++i) {
    struct sigaction action {};
    action.sa_handler = note_signal;
    action.sa_flags = SA_RESTART;
    (void)sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) (void)sigaction(kSignals[i], &action, nullptr);
  }
}

Interruption::~Interruption() {
  for (std::size_t i = 0; i < before_.size(); ++i) (void)sigaction(kSignals[i], &before_[i], nullptr);
}

int Interruption::number() {
  return came;
}

}  // namespace noisefloor
