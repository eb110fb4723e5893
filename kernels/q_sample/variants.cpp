// The ladder of q_sample. What each rung does better than the one below is in README.md.
#include "kernels/device/stream_limits.h"
#include "kernels/q_sample/launchers.h"

namespace noisefloor::q_sample {
namespace {

Support can_run_any(const Problem&, DType) {
  return supported();
}

Support can_stream(const Problem& p, DType dtype) {
  return streams(p.batch, p.elements, dtype);
}

Support for_tensor_core_sm80(const Problem& p, DType dtype) {
  if (dtype == DType::fp32) return unsupported("needs bf16 or fp16");
  if (p.batch > 65535) return unsupported("needs a batch of at most 65535");
  return can_stream(p, dtype);
}

constexpr Variant<Definition> kVariants[] = {
    {"host", Kind::host, Arch::host, launch_host, can_run_any},
    {"naive", Kind::naive, Arch::any_gpu, NOISEFLOOR_IF_CUDA(launch_naive), can_run_any},
    {"tiled", Kind::tiled, Arch::any_gpu, NOISEFLOOR_IF_CUDA(launch_tiled), can_stream},
    {"tensor_core_sm80", Kind::tensor_core, Arch::sm80, NOISEFLOOR_IF_SM80(launch_tensor_core_sm80),
     for_tensor_core_sm80},
    {"ptx_sm90a", Kind::ptx, Arch::sm90a, NOISEFLOOR_IF_SM90A(launch_ptx_sm90a), can_stream},
};

}  // namespace

std::span<const Variant<Definition>> Definition::variants() {
  return kVariants;
}

}  // namespace noisefloor::q_sample
