// A problem's tensors on a platform: random inputs, poisoned outputs, and guard bands around all of them. Every
// implementation of the problem is verified and timed on the same one. There are two sets of inputs, in the same place
// one after the other, so that a result of the one is wrong for the other.
//
// Timed launches read their random inputs through windows: each input lies behind some more numbers, and a window
// begins so many of them earlier; they are drawn anew for each batch. So launches that follow each other have other
// contents, at no cost, and what keeps a result by contents has to compute; what the last launch of a batch makes,
// through window 0, is judged.
//
// What a launch takes depends on where in memory its tensors lie, by up to a tenth (docs/experiments/measuring,
// places). So they can be moved: the places follow one another in one allocation, which has them in other pages, and at
// other offsets in a page.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/measure/suite.h"

namespace noisefloor {

// Inputs that come from outside, by name, each with all its bytes (not necessarily aligned).
using GivenTensors = std::map<std::string, std::span<const std::byte>>;

class Fixture {
 public:
  // Allocates and fills. The inputs that are not given depend on the problem and `seed` alone. Throws OutOfMemory with
  // the bytes needed. With `slots` above one there are as many, or as fit into kSlotsBytes and into memory.
  Fixture(Platform& platform, const SuiteEntry& entry, AnyProblem problem, DType dtype, std::uint64_t seed,
          const GivenTensors& given = {}, std::size_t slots = 1);

  Platform& platform() const { return *platform_; }
  const Workload& workload() const { return *entry_->workload; }
  const Oracle& oracle() const { return *entry_->oracle; }
  const AnyProblem& problem() const { return problem_; }
  DType dtype() const { return dtype_; }
  const std::vector<TensorSpec>& specs() const { return specs_; }
  std::span<void* const> pointers() const { return pointers_; }
  // The tensors' byte ranges, with their windows.
  const std::vector<std::pair<void*, std::size_t>>& resident() const { return resident_; }

  std::size_t slots() const { return slots_; }
  std::size_t slot() const { return slot_; }
  // Moves all tensors to a slot, in the stream's order; outputs are poisoned there. pointers() and resident() are then
  // others.
  void move_to(std::size_t slot);
  static constexpr std::size_t kSlots = 20;  // a mean of so many knows a scatter of 2 % to 0.45
  static constexpr std::size_t kSlotsBytes = std::size_t{512} << 20;
  static std::size_t slot_stride(std::size_t bytes);  // from a slot to the next, of so many bytes

  // Fills the inputs with those of a set, 0 (as after construction) or 1. Given inputs, and those that the op fills,
  // are the same in both.
  void use_inputs(std::size_t set);
  std::size_t inputs() const { return set_; }
  static constexpr std::size_t kSets = 2;

  // Before a batch: outputs become NaN, and new numbers lie before each random input. Those are there till
  // reset_outputs(), after which window 0 alone is to be read.
  void begin_batch();
  void use_window(std::size_t window);
  static constexpr std::size_t kWindows = 128;      // more than a batch has cold launches
  static constexpr std::size_t kWindowBytes = 256;  // from one to the next: vectors and TMA read any

  // Outputs become NaN, inout tensors what they were, guard bands whole.
  void reset_outputs();
  // Whether launches since have changed a tensor that they update, or there is none.
  bool updated();
  // The first tensor that was written since.
  std::optional<std::string> find_written();
  // The first tensor whose guard band was written, or that is an input and changed.
  std::optional<std::string> find_damage();
  // Inputs of this set on the host, in tensors() order, null data for outputs. Downloaded once.
  std::span<const HostTensor> host_tensors();

  static constexpr std::size_t kGuardBytes = 4096;  // one page: catches overruns by a whole tile row

 private:
  char* begin() const { return static_cast<char*>(arena_.data()) + slot_ * stride_; }  // of the slot
  void allocate(std::size_t slots);
  void fill_inputs(const GivenTensors& given);
  bool drawn(std::size_t tensor) const;
  // Bytes that windows begin earlier.
  std::size_t before(std::size_t tensor) const { return drawn(tensor) ? (kWindows - 1) * kWindowBytes : 0; }
  void draw(std::size_t tensor);
  bool guards_intact(std::size_t tensor);

  Platform* platform_;
  const SuiteEntry* entry_;
  AnyProblem problem_;
  DType dtype_;
  std::uint64_t seed_;
  std::size_t set_ = 0;
  std::vector<TensorSpec> specs_;
  std::vector<bool> given_;  // by tensor
  std::size_t bytes_ = 0, stride_ = 0, slots_ = 1, slot_ = 0;
  Buffer arena_;
  std::vector<void*> pointers_;
  std::size_t window_ = 0, windows_drawn_ = 0;
  std::vector<std::size_t> ends_;  // offsets in a slot where each tensor's trailing guard band ends
  std::vector<std::pair<void*, std::size_t>> resident_;
  std::array<std::vector<std::uint64_t>, kSets> input_checksums_;  // of a set that was used, by tensor
  std::vector<std::vector<char>> saved_inout_;
  std::vector<LargeMemory> host_data_;
  std::vector<HostTensor> host_tensors_;
};

// Of `bytes` in each slot, `stride` apart; in one slot, and `slots` is then 1, where that leaves less than half of
// the free memory. Throws OutOfMemory.
Buffer allocate_slots(Platform& platform, std::size_t bytes, std::size_t stride, std::size_t& slots);

// What rows are timed at: Fixture::kSlots on a GPU; one on a host, whose caches are its threads' own.
std::size_t usual_slots(const Platform& platform);

}  // namespace noisefloor
