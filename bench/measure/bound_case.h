// A candidate bound to a fixture: its workspace, its prepared weights or tuned plan, and a launch that takes no
// arguments.
#pragma once

#include <memory>

#include "bench/measure/candidate.h"
#include "bench/measure/fixture.h"

namespace noisefloor {

class BoundCase {
 public:
  // Allocates, prepares weights or tunes the baseline. Throws OutOfMemory, DeviceError, or std::runtime_error with the
  // library's words. An assembly takes times from `known` and adds those that it measured.
  BoundCase(Fixture& fixture, const Candidate& candidate, KnownTimes* known = nullptr);

  // With `overlapping`, a kernel of ours that waits for the one before it by itself may start before that has ended
  // (LaunchContext::programmatic_launch); other kernels and baselines are launched as without.
  Launch launch(bool overlapping = false);
  // A launch is hundreds of kernels: one alone says nothing of it, and they are timed as one CUDA graph.
  bool many_kernels() const { return candidate_.assembly != nullptr; }
  // Every byte range that a launch may touch: the fixture's tensors, the workspace, the prepared weights, and what an
  // assembly has of its own.
  std::vector<std::pair<void*, std::size_t>> resident() const;
  std::size_t workspace_bytes() const { return workspace_.bytes() == 0 ? 0 : workspace_.bytes() - kGuardBytes; }
  std::size_t own_bytes() const;  // what an assembly has of its own
  double prepare_us() const { return prepare_us_; }
  bool prepares() const { return candidate_.variant != nullptr && prepared_.bytes() > 0; }
  std::string description() const { return run_ ? run_->description() : std::string(); }
  // Whether the band behind the workspace was written.
  bool workspace_overrun();

 private:
  static constexpr std::size_t kGuardBytes = Fixture::kGuardBytes;
  Fixture* fixture_;
  Candidate candidate_;
  std::unique_ptr<BaselineRun> run_;
  const AssembledRun* assembled_ = nullptr;  // run_, where it is one
  Buffer workspace_;
  Buffer prepared_;
  double prepare_us_ = 0;
};

}  // namespace noisefloor
