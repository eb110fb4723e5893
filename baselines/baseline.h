// A vendor's implementation of an op's problem, given its best: the contract of every baseline.
//
// Unlike a variant of ours, a baseline keeps state (handles, plans, the algorithm it tuned), so it is an object per
// problem.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/core/dynamic_library.h"
#include "kernels/core/op.h"

namespace noisefloor {

// The library is there and says no to this problem. Such a row's status is `unsupported_problem`.
class LibraryRefused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What a launch finds in L2: nothing, or what the launch before it left, as in a network.
enum class Caches { cold, warm };

struct Timed {
  double microseconds;  // median
  int index;            // of the algorithm
};

struct Ranking {
  Status status;               // not ok: no algorithm ran, or the device failed
  std::vector<Timed> fastest;  // best first; not empty when ok
  int tried = 0;               // the first so many were; a budget was then spent
  int ran = 0;                 // those of them that launched; the library refused the others
};

// The harness's side of a library's search for its fastest algorithm.
class Ranker {
 public:
  virtual ~Ranker() = default;
  // Times `count` algorithms under the same conditions; `launch(i)` enqueues algorithm i.
  virtual Ranking rank(Caches caches, int count, const std::function<Status(int)>& launch) = 0;
  // Whether what `launch` leaves in the outputs is within the op's tolerance. A refusal of the library is a no; throws
  // where the device failed.
  virtual bool accurate(const std::function<Status()>& launch) = 0;
};

// The algorithms of a choice, in words with which a run of the same problem, library and kind of GPU can repeat it
// without a search; empty: none.
using Algorithms = std::vector<std::string>;

class BaselineRun {
 public:
  virtual ~BaselineRun() = default;

  // Bytes of workspace that tune and launch need; known after construction.
  virtual std::size_t workspace_bytes() const = 0;
  // Packs weights, as Variant::prepare does it: once per weight, outside all timing, before tune and launch.
  virtual std::size_t prepared_bytes() const { return 0; }
  virtual Status prepare(std::span<void* const>, void*, const LaunchContext&) { return success(); }
  // Tries every algorithm that the library offers on these tensors (order of Op::tensors; outputs are overwritten) and
  // keeps the fastest accurate one of each state of the caches (search.h). Blocks; called once, outside all timing, and
  // not where it was created with an earlier choice.
  virtual Status tune(std::span<void* const> pointers, const Scratch& scratch, const LaunchContext& context,
                      Ranker& ranker) = 0;
  // Enqueues the algorithm chosen for these caches; capturable in a CUDA graph.
  virtual Status launch(std::span<void* const> pointers, const Scratch& scratch, const LaunchContext& context,
                        Caches caches) = 0;
  // The algorithms' names, how many were offered and tried, and what a time limit cut: the row's. Valid after tune.
  virtual std::string description() const = 0;
  // What tune chose, for `create`; valid after tune.
  virtual Algorithms algorithms() const = 0;
};

struct Baseline {
  const char* op;
  const char* name;
  // Whether the library can express the problem at all, without a device.
  Support (*can_run)(const AnyProblem&, DType);
  // Throws LibraryMissing, or LibraryRefused with the library's words, or where it cannot repeat the earlier choice.
  std::unique_ptr<BaselineRun> (*create)(const AnyProblem&, DType, const DeviceInfo&, const Algorithms& earlier);
  long (*version)() = nullptr;  // of the library; throws LibraryMissing. Null: choices are not kept
};

// The vendor baselines in this build; empty without CUDA.
std::span<const Baseline> baselines();

// The libraries behind them, as they are opened here: {"cublaslt", "13.1.0"}. One that cannot be opened is left out.
std::vector<std::pair<std::string, std::string>> library_versions();

}  // namespace noisefloor
