// The variants, best last.
#include "kernels/groupnorm/cluster_plan.h"
#include "kernels/groupnorm/finish_plan.h"
#include "kernels/groupnorm/grid_plan.h"
#include "kernels/groupnorm/groupnorm.h"

namespace noisefloor::groupnorm {

constexpr const char* kGivenReason = "needs slab_stats=none: with given statistics nothing is left to sum; see tiled";
constexpr const char* kSkipReason = "needs skip_channels=0: it reads one tensor; see naive and ptx_sm90a";

Support adds_by_mma(const Problem& p, DType dtype) {
  if (p.skip_channels > 0) return unsupported(kSkipReason);
  if (p.given() && !p.coefficients) return unsupported(kGivenReason);
  if (dtype == DType::fp32) return unsupported("needs bf16 or fp16");
  if (p.channels % 8 != 0) return unsupported("needs channels divisible by 8");
  if (p.channels_per_group() % 2 != 0) return unsupported("needs an even number of channels per group");
  return supported();
}

// Their offsets are 32 bits wide.
static Support few_parameters(const Problem& p) {
  if (p.n * p.scale_shift_stride() > INT32_MAX)
    return unsupported(p.packed ? "needs 2 * n * channels < 2^31" : "needs n * channels < 2^31");
  return supported();
}

Support holds_on_chip(const Problem& p, DType dtype) {
  if (p.given()) return unsupported(kGivenReason);
  if (p.coefficients) return unsupported("needs coefficients=0: it holds x on chip to write y; see tensor_core_sm80");
  if (dtype == DType::fp32) return unsupported("needs bf16 or fp16");
  if (p.channels % kClusterLanes != 0) return unsupported("needs channels divisible by 8");
  return few_parameters(p);
}

namespace {

Support for_tiled(const Problem& p, DType) {
  return p.skip_channels > 0 ? unsupported(kSkipReason) : supported();
}

Support for_finish(const Problem& p, DType dtype) {
  if (dtype == DType::fp32) return unsupported("needs bf16 or fp16");
  if (!plan_finish(p, 1))
    return unsupported(
        "needs channels divisible by 4, and some groups of 2 or more channels, 128 at most, in 16 bytes");
  return few_parameters(p);
}

Support for_ptx_sm90a_grid(const Problem& p, DType dtype) {
  if (p.down()) return unsupported("needs down_w=0: its rows are pixels of x, in their order; see ptx_sm90a");
  if (p.skip_channels > 0) return unsupported(kSkipReason);
  if (const Support support = holds_on_chip(p, dtype); !support) return support;
  if (p.n * p.groups > kMaxGridUnits) return unsupported("needs n * groups <= 2^16");
  if (p.group_size() > INT32_MAX) return unsupported("needs hw * channels / groups < 2^31");
  if (!choose_grid_plan(p, kFewestGridSms))
    return unsupported("needs rows of some groups to be a multiple of 16 bytes, 8 KiB at most, and hw < 78 * 2^21");
  return supported();
}

Support for_ptx_sm90a(const Problem& p, DType dtype) {
  if (!p.reads_x()) return for_finish(p, dtype);
  if (const Support support = holds_on_chip(p, dtype); !support) return support;
  if (p.skip_channels % kClusterLanes != 0) return unsupported("needs skip_channels divisible by 8");
  if (p.n * p.groups > kMaxClusterUnits) return unsupported("needs n * groups <= 2^21");
  if (!choose_cluster_plan(p, 1))
    return unsupported(
        "needs hw rows of some groups, a multiple of 16 bytes wide, to fit 16 blocks' shared memory and registers");
  if (p.hw > kMostClusterPixels && for_ptx_sm90a_grid(p, dtype))
    return unsupported("needs hw <= 14592, where clusters hold whole lines and share SMs: see ptx_sm90a_grid");
  return supported();
}

constexpr Definition::Variant kVariants[] = {
    NOISEFLOOR_HOST(any_problem, host_workspace_bytes),
    NOISEFLOOR_NAIVE(),
    NOISEFLOOR_TILED(for_tiled, NOISEFLOOR_IF_CUDA(tiled_workspace_bytes)),
    NOISEFLOOR_TENSOR_CORE_SM80(adds_by_mma, NOISEFLOOR_IF_SM80(tensor_core_sm80_workspace_bytes)),
    {{"ptx_sm90a_grid", Kind::ptx, Arch::sm90a},
     {NOISEFLOOR_IF_SM90A(launch_ptx_sm90a_grid), for_ptx_sm90a_grid, ptx_sm90a_grid_workspace_bytes},
     grid_choices},
    {kPtxSm90a, {NOISEFLOOR_IF_SM90A(launch_ptx_sm90a), for_ptx_sm90a}, cluster_choices},
};

}  // namespace

std::size_t ptx_sm90a_grid_workspace_bytes(const Problem& p, DType, const DeviceInfo& device) {
  return grid_workspace_bytes(p, device.sm_count);  // of any plan
}

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::groupnorm
