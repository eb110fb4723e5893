// The variants of gemm. What each variant does is in README.md.
#include <algorithm>
#include <string_view>

#include "kernels/gemm/gemm.h"
#include "kernels/gemm/launchers.h"
#include "kernels/gemm/schedule.h"

namespace noisefloor::gemm {
namespace {

// What the kernels of forward passes lack.
Support can_run_forward(const Problem& problem) {
  if (problem.layout != Layout::nt) return unsupported("needs layout=nt; see tensor_core_sm80");
  if (problem.to != Target::same) return unsupported("needs to=same; see tiled");
  return supported();
}

// What kernels of any layout lack: D is fp32 with layout=tn alone. They take 16 bytes at a time, along rows of A and B.
Support can_run_layout(const Problem& problem) {
  const bool tn = problem.layout == Layout::tn;
  if (tn && (problem.to != Target::fp32 || problem.bias || problem.residual))
    return unsupported("needs to=fp32, bias=0 and residual=0 with layout=tn; see tiled");
  if (!tn && problem.to != Target::same) return unsupported("needs to=same but with layout=tn; see tiled");
  if (!tn && problem.k % 8 != 0) return unsupported("needs k to be a multiple of 8: rows of A are read by 16 bytes");
  if (tn && problem.m % 8 != 0) return unsupported("needs m to be a multiple of 8: rows of A are read by 16 bytes");
  if (problem.layout != Layout::nt && problem.n % 8 != 0)
    return unsupported("needs n to be a multiple of 8: rows of B are read by 16 bytes");
  return supported();
}

// At most 2^40 outputs (`check` in gemm.cpp) are at most 2^31 - 1 tiles of any other variant.
Support can_run_naive(const Problem& problem, DType) {
  if (tile_count(problem, kNaiveTile, kNaiveTile) > kMaxBlocks)
    return unsupported("needs at most 2^31 - 1 tiles of 16x16");
  return supported();
}

Support can_run_sm80(const Problem& problem, DType dtype) {
  if (dtype == DType::fp32) return unsupported("needs bf16 or fp16");
  return can_run_layout(problem);
}

Support can_run_sm75(const Problem& problem, DType dtype) {
  if (dtype != DType::fp16) return unsupported("needs fp16 (bf16 products need sm_80)");
  if (problem.k % 8 != 0) return unsupported("needs k to be a multiple of 8");
  return can_run_forward(problem);
}

std::size_t workspace_bytes_sm80(const Problem& problem, DType, const DeviceInfo& device) {
  const Sm80Plan plan = choose_sm80_plan(problem, device);
  return problem.layout == Layout::tn ? parts_bytes(problem, plan.splits) : sm80_workspace_bytes(plan);
}

Support can_run_ptx_sm90a(const Problem& problem, DType dtype) {
  constexpr std::int64_t kMaxIndex = (std::int64_t{1} << 31) - 1;
  if (dtype == DType::fp32) return unsupported("needs bf16 or fp16");
  if (const Support layout = can_run_layout(problem); !layout) return layout;
  if (problem.n % 8 != 0) return unsupported("needs n to be a multiple of 8: rows of D are stored in 16-byte pieces");
  if (problem.blend && (problem.act != Activation::none || problem.image_shift))
    return unsupported("needs act=none and image_shift=0 beside blend");
  if (problem.part_columns % kSmallestBlockN != 0)
    return unsupported("needs part_columns to be a multiple of 32: a tile lies in one part of D");
  if (problem.layout == Layout::tn && problem.k > kMaxIndex / 2)
    return unsupported("needs k of at most 2^30 with layout=tn: parts of it are counted in 32 bits");
  if (tile_count(problem, 64, 16) > kMaxIndex / 2) return unsupported("needs at most 2^30 tiles of 64x16");
  return supported();
}

std::size_t workspace_bytes_ptx_sm90a(const Problem& problem, DType, const DeviceInfo& device) {
  return parts_bytes(problem, k_parts(problem, device.sm_count));
}

Support can_run_ptx_small_m_sm90a(const Problem& problem, DType dtype) {
  if (dtype == DType::fp32) return unsupported("needs bf16 or fp16");
  if (problem.m > kSmallM) return unsupported("needs m of at most 8");
  if (problem.blend) return unsupported("has no blend");
  if (problem.k % 8 != 0) return unsupported("needs k to be a multiple of 8: rows are read in 16-byte pieces");
  return can_run_forward(problem);
}

constexpr Definition::Variant kVariants[] = {
    NOISEFLOOR_HOST(any_problem, host_workspace_bytes),
    NOISEFLOOR_NAIVE(can_run_naive),
    NOISEFLOOR_TILED(),
    {{"tensor_core_sm75", Kind::tensor_core, Arch::sm75}, {NOISEFLOOR_IF_SM75(launch_tensor_core_sm75), can_run_sm75}},
    NOISEFLOOR_TENSOR_CORE_SM80(can_run_sm80, workspace_bytes_sm80),
    {kPtxSm90a,
     {NOISEFLOOR_IF_SM90A(launch_ptx_sm90a), can_run_ptx_sm90a, workspace_bytes_ptx_sm90a},
     schedule_choices},
    {{"ptx_sm90a_small_m", Kind::ptx, Arch::sm90a},
     {NOISEFLOOR_IF_SM90A(launch_ptx_small_m_sm90a), can_run_ptx_small_m_sm90a}}};

}  // namespace

std::span<const Definition::Variant> variants() {
  return kVariants;
}
const Definition::Variant& ptx_variant() {
  return *std::ranges::find(kVariants, std::string_view(kPtxSm90a.name), &Definition::Variant::name);
}

}  // namespace noisefloor::gemm
