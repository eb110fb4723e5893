// The ladder of attention. What each rung does better than the one below is in README.md.
#include "kernels/core/variant.h"

#include "kernels/attention/launchers.h"

namespace noisefloor::attention {
namespace {

Support can_run_any(const Problem&, DType) {
  return supported();
}

Support can_run_naive(const Problem& p, DType) {
  if (p.shape().rows() / kNaiveRows >= kMaxBlocks) return unsupported("needs batch * heads * seq_q below 2^34");
  return supported();
}

constexpr Variant<Definition> kVariants[] = {
    {"host", Kind::host, Arch::host, launch_host, can_run_any},
    {"naive", Kind::naive, Arch::any_gpu, NOISEFLOOR_IF_CUDA(launch_naive), can_run_naive},
};

}  // namespace

std::span<const Variant<Definition>> Definition::variants() {
  return kVariants;
}

}  // namespace noisefloor::attention
