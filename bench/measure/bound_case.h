// An implementation bound to a fixture: made ready, with workspace, prepared weights or a tuned algorithm, and a launch
// that takes no arguments.
#pragma once

#include <memory>

#include "bench/measure/fixture.h"
#include "bench/measure/implementation.h"
#include "bench/measure/tuner.h"

namespace noisefloor {

class Verifier;

// Copies of a launch's weights: what a network has between two calls of one layer are the weights of others. Launches
// that follow each other read the copies in turns, so many that between two reads of one at least twice L2 of others
// are read; and where fewer launches follow each other, one more than these. Before the first one L2 is to be emptied.
class WeightCopies {
 public:
  // Of the tensors whose bits are set in `weights`, as they are now, and of what was prepared of them, for `launches`
  // in a row. Throws OutOfMemory.
  WeightCopies(const Fixture& fixture, std::uint64_t weights, const Buffer& prepared, int launches);
  std::size_t count() const { return count_; }
  std::uint64_t weights() const { return weights_; }
  // The fixture's tensors where they are now, but for the weights.
  std::span<void* const> pointers(std::size_t copy);
  void* prepared(std::size_t copy) const { return prepared_bytes_ > 0 ? begin(copy) + prepared_at_ : nullptr; }
  // Whether nothing wrote to a copy, or beside one.
  bool intact() const { return fixture_->platform().checksum(data_.data(), data_.bytes()) == checksum_; }

 private:
  char* begin(std::size_t copy) const { return static_cast<char*>(data_.data()) + copy * stride_; }

  const Fixture* fixture_;
  std::uint64_t weights_, checksum_ = 0;
  std::vector<std::pair<std::size_t, std::size_t>> places_;  // of each weight: its tensor, and where it is in a copy
  std::size_t prepared_at_ = 0, prepared_bytes_ = 0, stride_ = 0, count_ = 0;
  Buffer data_;
  std::vector<void*> pointers_;
};

class BoundCase {
 public:
  // Allocates, prepares weights, or tunes: against `verifier`, or one of its own. Throws OutOfMemory, DeviceError, or
  // std::runtime_error with a library's words. What chooses by times takes them from `known` and adds
  // those that it measured.
  BoundCase(Fixture& fixture, const Implementation& implementation, Verifier* verifier = nullptr,
            KnownTimes* known = nullptr);

  // With `overlapping`, a kernel of ours that waits for the one before it by itself may start before that has ended
  // (LaunchContext::programmatic_launch); other kernels are launched as without, and baselines run what they chose for
  // warm caches. constant_inputs: LaunchContext's.
  Launch launch(bool overlapping = false, std::uint64_t constant_inputs = 0);
  WeightCopies copy_weights(std::uint64_t weights, int launches) const {
    return {*fixture_, weights, prepared_, launches};
  }
  Status launch_from(WeightCopies& copies, std::size_t copy);  // once, as in a pipeline
  bool many_kernels() const { return ready_->many_kernels(); }
  const std::string& name() const { return name_; }  // the implementation's
  Fixture& fixture() const { return *fixture_; }
  bool of_plugin() const { return of_plugin_; }
  // Every byte range that a launch may touch: the fixture's tensors, the workspace, the prepared weights, and what is
  // the implementation's own.
  std::vector<std::pair<void*, std::size_t>> resident() const;
  // Bytes beside the tensors: the workspace, and what is the implementation's own.
  std::size_t working_bytes() const;
  // Fills the fixture's inputs with those of a set, and prepares its weights where those of another set are prepared.
  void use_inputs(std::size_t set);
  // Whether launches may overlap: warm times then depend on `overlapping`.
  bool overlaps() const { return ready_->overlaps(); }
  bool prepares() const { return prepared_.bytes() > 0; }
  Launch preparing();  // of its weights, once more
  void prepare_each_launch() { prepares_each_ = true; }
  double prepare_us() const { return prepare_us_; }
  std::string description() const { return ready_->description(); }
  std::map<CaseId, std::size_t> launches() const { return ready_->launches(); }
  // For launches with other tensors; this is then of no more use.
  std::unique_ptr<Ready> take_ready() { return std::move(ready_); }
  // Whether the band behind the workspace was written.
  bool workspace_overrun();

 private:
  static constexpr std::size_t kGuardBytes = Fixture::kGuardBytes;
  void make(const Implementation& implementation, Verifier* verifier, KnownTimes& known);
  void lay_out();
  void prepare();
  char* workspace_of(std::size_t slot) const;
  char* workspace() const { return workspace_of(fixture_->slot()); }  // where the fixture's tensors are

  Fixture* fixture_;
  std::string name_;
  bool of_plugin_;
  std::unique_ptr<Ready> ready_;
  std::size_t workspace_bytes_ = 0, workspace_slots_ = 1;
  Buffer workspace_;  // in as many slots as the fixture, or as fit
  Buffer prepared_;
  std::size_t prepared_set_ = 0;  // of inputs
  double prepare_us_ = 0;
  bool prepares_each_ = false;
};

}  // namespace noisefloor
