// One variant of an op: a way to compute it, and what that way needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>  // declares std::string, which kernels' files need not read
#include <vector>

#include "kernels/core/device.h"
#include "kernels/core/dtype.h"
#include "kernels/core/status.h"

namespace noisefloor {

enum class Kind { host, naive, tiled, tensor_core, ptx, baseline };

const char* to_string(Kind kind);

// Whether a variant can run a problem; `reason` says what it would need, and is null when it can.
struct Support {
  const char* reason = nullptr;
  constexpr explicit operator bool() const { return reason == nullptr; }
};
constexpr Support supported() {
  return {};
}
constexpr Support unsupported(const char* reason) {
  return {reason};
}
template <class Problem>
constexpr Support any_problem(const Problem&, DType) {
  return supported();
}

// Memory the caller owns: `workspace` (uninitialised, at least workspace_bytes, 256-byte aligned; one per launch in
// flight) and `prepared` (what `prepare` wrote; null for variants that prepare nothing).
struct Scratch {
  void* workspace = nullptr;
  const void* prepared = nullptr;
};

// What a row is called and where it runs.
struct VariantInfo {
  const char* name;
  Kind kind;
  Arch arch;
  const char* limit = nullptr;  // values up to which it is right, where can_run cannot see them; null: none
};
inline constexpr VariantInfo kHost{"host", Kind::host, Arch::host};
inline constexpr VariantInfo kNaive{"naive", Kind::naive, Arch::any_gpu};
inline constexpr VariantInfo kTiled{"tiled", Kind::tiled, Arch::any_gpu};
inline constexpr VariantInfo kTensorCoreSm80{"tensor_core_sm80", Kind::tensor_core, Arch::sm80};
inline constexpr VariantInfo kPtxSm90a{"ptx_sm90a", Kind::ptx, Arch::sm90a};

// In place of a launcher. A variant that is not written yet, or that its kind has no form of the op for, says why, in
// words for the row; a function whose file is not in this build (no CUDA, or not that architecture) is LeftOut.
struct NotWritten {
  const char* reason;
  bool not_applicable = false;
};
constexpr NotWritten not_written(const char* reason) {
  return {reason};
}
constexpr NotWritten not_applicable(const char* reason) {
  return {reason, true};
}
struct LeftOut {
  template <class Function>
  constexpr operator Function*() const {
    return nullptr;
  }
};

// How a variant computes the op. Device pointers (host pointers for Kind::host) in `Tensors`. `launch` enqueues on
// context.stream and returns; it never allocates, synchronises, prints, reads the environment or keeps state.
template <class Problem, class Tensors>
struct Way {
  using Launcher = Status(const Problem&, DType, const Tensors&, const Scratch&, const LaunchContext&);
  using CanRun = Support(const Problem&, DType);
  using WorkspaceBytes = std::size_t(const Problem&, DType, const DeviceInfo&);
  using PreparedBytes = std::size_t(const Problem&, DType);
  using Prepare = Status(const Problem&, DType, const Tensors&, void* prepared, const LaunchContext&);

  constexpr Way(Launcher* launcher, CanRun* problems = any_problem, WorkspaceBytes* workspace = nullptr,
                PreparedBytes* preparation = nullptr, Prepare* preparer = nullptr)
      : launch(launcher),
        can_run(problems),
        workspace_bytes(workspace),
        prepared_bytes(preparation),
        prepare(preparer) {}
  constexpr Way(LeftOut none) : Way(static_cast<Launcher*>(none)) {}
  constexpr Way(NotWritten why) : not_written(why.reason), not_applicable(why.not_applicable) {}
  Way(std::nullptr_t, ...) = delete;  // say not_written, and why

  Launcher* launch = nullptr;  // null: not written, or not in this build
  CanRun* can_run = any_problem;
  WorkspaceBytes* workspace_bytes = nullptr;  // null: none
  PreparedBytes* prepared_bytes = nullptr;    // null: nothing to prepare
  // Reorders or reduces the weights once, outside the timed launch; writes prepared_bytes at `prepared`.
  Prepare* prepare = nullptr;
  const char* not_written = nullptr;  // why there is no launcher in any build
  bool not_applicable = false;        // and there will be none
};

// One of the ways in which a variant can run a problem: its tiles, its split. A template, so that files which only name
// it need no <string>.
template <class Text>
struct ChoiceOf {
  Text text;               // canonical, e.g. "bundle=2,blocks=8,threads=256,held=4"
  bool estimated = false;  // what the variant's own estimate takes
};
using Choice = ChoiceOf<std::string>;

// A row of an op's variants.
template <class Problem, class Tensors>
struct Variant : VariantInfo, Way<Problem, Tensors> {
  // Of one that chooses such a way for itself: every one that LaunchContext::choice may name, for the tuner, the
  // estimate's first; none where the problem fits none. Null: it offers none.
  std::vector<Choice> (*choices)(const Problem&, DType, const DeviceInfo&) = nullptr;
};

}  // namespace noisefloor

// For variants.cpp: the function when the file that holds it is in this build. CMake defines the architectures.
#if defined(NOISEFLOOR_HAS_CUDA)
#define NOISEFLOOR_IF_CUDA(function) function
#else
#define NOISEFLOOR_IF_CUDA(function) ::noisefloor::LeftOut()
#endif
#if defined(NOISEFLOOR_HAS_SM75)
#define NOISEFLOOR_IF_SM75(function) function
#else
#define NOISEFLOOR_IF_SM75(function) ::noisefloor::LeftOut()
#endif
#if defined(NOISEFLOOR_HAS_SM80)
#define NOISEFLOOR_IF_SM80(function) function
#else
#define NOISEFLOOR_IF_SM80(function) ::noisefloor::LeftOut()
#endif
#if defined(NOISEFLOOR_HAS_SM90A)
#define NOISEFLOOR_IF_SM90A(function) function
#else
#define NOISEFLOOR_IF_SM90A(function) ::noisefloor::LeftOut()
#endif

// The variants that most ops have, each by the launcher of its name, with what else a Way takes: what it can run, ...
#define NOISEFLOOR_WAY(launcher, ...) \
  { launcher __VA_OPT__(, ) __VA_ARGS__ }
#define NOISEFLOOR_HOST(...) \
  { kHost, NOISEFLOOR_WAY(launch_host, __VA_ARGS__) }
#define NOISEFLOOR_NAIVE(...) \
  { kNaive, NOISEFLOOR_WAY(NOISEFLOOR_IF_CUDA(launch_naive), __VA_ARGS__) }
#define NOISEFLOOR_TILED(...) \
  { kTiled, NOISEFLOOR_WAY(NOISEFLOOR_IF_CUDA(launch_tiled), __VA_ARGS__) }
#define NOISEFLOOR_TENSOR_CORE_SM80(...) \
  { kTensorCoreSm80, NOISEFLOOR_WAY(NOISEFLOOR_IF_SM80(launch_tensor_core_sm80), __VA_ARGS__) }
#define NOISEFLOOR_PTX_SM90A(...) \
  { kPtxSm90a, NOISEFLOOR_WAY(NOISEFLOOR_IF_SM90A(launch_ptx_sm90a), __VA_ARGS__) }
