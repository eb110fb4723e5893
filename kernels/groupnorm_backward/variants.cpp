// The variants, best last. What each variant does is in README.md.
#include "kernels/groupnorm/grid_plan.h"
#include "kernels/groupnorm_backward/cluster_plan.h"
#include "kernels/groupnorm_backward/groupnorm_backward.h"

namespace noisefloor::groupnorm_backward {
namespace {

Support for_tensor_core_sm80(const Problem& p, DType dtype) {
  return groupnorm::adds_by_mma(forward_of(p), dtype);
}

// Each SM has 8 bytes of each for its sums, which a launch clears: 70 MB.
constexpr std::int64_t kMaxGridChannels = std::int64_t{1} << 16;

Support for_ptx_sm90a_grid(const Problem& p, DType dtype) {
  if (const Support support = groupnorm::holds_on_chip(forward_of(p), dtype); !support) return support;
  if (p.n * p.groups > groupnorm::kMaxGridUnits) return unsupported("needs n * groups <= 2^16");
  if (p.n * p.channels > kMaxGridChannels) return unsupported("needs n * channels <= 2^16");
  if (p.group_size() > INT32_MAX) return unsupported("needs hw * channels / groups < 2^31");
  if (!choose_grid_plan(p, groupnorm::kFewestGridSms))
    return unsupported("needs rows of some groups to be a multiple of 16 bytes, 8 KiB at most, and hw < 78 * 2^21");
  return supported();
}

Support for_ptx_sm90a(const Problem& p, DType dtype) {
  if (const Support support = groupnorm::holds_on_chip(forward_of(p), dtype); !support) return support;
  if (p.n * p.groups > groupnorm::kMaxClusterUnits) return unsupported("needs n * groups <= 2^21");
  if (!choose_cluster_plan(p, 1))
    return unsupported(
        "needs hw rows of some groups of x and dy, a multiple of 16 bytes wide, to fit 16 blocks' shared memory");
  if (p.hw > groupnorm::kMostClusterPixels && for_ptx_sm90a_grid(p, dtype))
    return unsupported("needs hw <= 14592, where clusters hold whole lines of x and dy: see ptx_sm90a_grid");
  return supported();
}

constexpr Definition::Variant kVariants[] = {
    NOISEFLOOR_HOST(any_problem, host_workspace_bytes),
    NOISEFLOOR_NAIVE(any_problem, NOISEFLOOR_IF_CUDA(naive_workspace_bytes)),
    NOISEFLOOR_TENSOR_CORE_SM80(for_tensor_core_sm80, NOISEFLOOR_IF_SM80(tensor_core_sm80_workspace_bytes)),
    NOISEFLOOR_TILED(any_problem, NOISEFLOOR_IF_CUDA(tiled_workspace_bytes)),
    {{"ptx_sm90a_grid", Kind::ptx, Arch::sm90a},
     {NOISEFLOOR_IF_SM90A(launch_ptx_sm90a_grid), for_ptx_sm90a_grid, ptx_sm90a_grid_workspace_bytes},
     grid_choices},
    {kPtxSm90a,
     {NOISEFLOOR_IF_SM90A(launch_ptx_sm90a), for_ptx_sm90a, NOISEFLOOR_IF_CUDA(naive_workspace_bytes)},
     cluster_choices},
};

}  // namespace

// Of any plan: words of channels, of each block and of all, then the images' sums.
std::size_t ptx_sm90a_grid_workspace_bytes(const Problem& p, DType, const DeviceInfo& device) {
  return static_cast<std::size_t>(p.n * p.channels * (device.sm_count + 1) * 8 + p.n * 2 * p.channels * 4);
}

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::groupnorm_backward
