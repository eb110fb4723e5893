// What keeps a training's checkpoint whole: one writer at a time, and an orderly end when it is interrupted.
#pragma once

#include <signal.h>

#include <array>
#include <filesystem>

namespace noisefloor {

// Holds FILE.lock, by flock(), which goes with the process however it ends: what kill -9 leaves is taken over. It names
// the process, for the message of whoever comes second. Throws InvalidInput naming the file, and who writes it.
class CheckpointLock {
 public:
  explicit CheckpointLock(const std::filesystem::path& checkpoint);
  ~CheckpointLock();  // removes it
  CheckpointLock(const CheckpointLock&) = delete;
  CheckpointLock& operator=(const CheckpointLock&) = delete;

 private:
  std::filesystem::path file_;
  int descriptor_ = -1;
};

// While it lives, the first SIGINT, SIGTERM or SIGHUP is noted, and one more than a second later ends the program as
// ever. One that was ignored before stays so.
class Interruption {
 public:
  Interruption();
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;
  static int number();  // of the signal; 0: none came

 private:
  std::array<struct sigaction, 3> before_{};
};

}  // namespace noisefloor
