// One rung of an op's ladder: a way to compute it, and what that way needs.
#pragma once

#include <cstddef>
#include <cstdint>

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

// Memory the caller owns: `workspace` (uninitialised, at least workspace_bytes, 256-byte aligned; one per launch in
// flight) and `prepared` (what `prepare` wrote; null for variants that prepare nothing).
struct Scratch {
  void* workspace = nullptr;
  const void* prepared = nullptr;
};

// Device pointers (host pointers for Kind::host) in `Tensors`. `launch` enqueues on context.stream and returns; it
// never allocates, synchronises, prints, reads the environment or keeps state. A null `launch` means: not in this
// build.
template <class Op>
struct Variant {
  using Problem = typename Op::Problem;
  using Tensors = typename Op::Tensors;

  const char* name;
  Kind kind;
  Arch arch;
  Status (*launch)(const Problem&, DType, const Tensors&, const Scratch&, const LaunchContext&);
  Support (*can_run)(const Problem&, DType);
  std::size_t (*workspace_bytes)(const Problem&, DType, const DeviceInfo&) = nullptr;  // null: none
  std::size_t (*prepared_bytes)(const Problem&, DType) = nullptr;                      // null: nothing to prepare
  // Reorders or reduces the weights once, outside the timed launch; writes prepared_bytes at `prepared`.
  Status (*prepare)(const Problem&, DType, const Tensors&, void* prepared, const LaunchContext&) = nullptr;
};

}  // namespace noisefloor

// For variants.cpp: the launcher when the file that holds it is in this build, else null. CMake defines the
// architectures.
#if defined(NOISEFLOOR_HAS_CUDA)
#define NOISEFLOOR_IF_CUDA(launcher) launcher
#else
#define NOISEFLOOR_IF_CUDA(launcher) nullptr
#endif
#if defined(NOISEFLOOR_HAS_SM75)
#define NOISEFLOOR_IF_SM75(launcher) launcher
#else
#define NOISEFLOOR_IF_SM75(launcher) nullptr
#endif
#if defined(NOISEFLOOR_HAS_SM80)
#define NOISEFLOOR_IF_SM80(launcher) launcher
#else
#define NOISEFLOOR_IF_SM80(launcher) nullptr
#endif
#if defined(NOISEFLOOR_HAS_SM90A)
#define NOISEFLOOR_IF_SM90A(launcher) launcher
#else
#define NOISEFLOOR_IF_SM90A(launcher) nullptr
#endif
