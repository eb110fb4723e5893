// The variants of conv2d_dgrad, best last: kernels/convolution does the work, of 1x1 layers gemm.
#include "kernels/conv2d_dgrad/conv2d_dgrad.h"
#include "kernels/core/op.h"
#include "kernels/gemm/gemm.h"

namespace noisefloor::conv2d_dgrad {
namespace {

using convolution::of_forward;

template <auto launcher>
Status launch(const Problem& p, DType dtype, const Tensors& t, const Scratch& scratch, const LaunchContext& context) {
  if (const Status status = definition.check_pointers(p, t); !status.ok()) return status;
  const convolution::DgradFactors factors{static_cast<float>(p.scale), static_cast<float>(p.residual_scale)};
  return launcher(forward_of(p), dtype, t, factors, scratch.workspace, context);
}

// Of a 1x1 convolution: dx[pixels, cin] = scale * dy[pixels, cout] w[cout, cin] + residual.
gemm::Problem product_of(const Problem& p) {
  return {.m = p.n * p.h * p.w,
          .n = p.cin,
          .k = p.cout,
          .scale = p.scale,
          .bias = false,
          .residual = p.residual,
          .layout = gemm::Layout::nn};
}
Support can_run_pointwise(const Problem& p, DType dtype) {
  if (const Support support = takes_pointwise(p); !support) return support;
  if (p.residual_scale != 1) return unsupported("needs residual_scale=1");
  return gemm::ptx_variant().can_run(product_of(p), dtype);
}
[[maybe_unused]] Status launch_pointwise(const Problem& p, DType dtype, const Tensors& t, const Scratch& scratch,
                                         const LaunchContext& context) {
  const gemm::Tensors tensors{.a = t.dy, .b = t.w, .residual = t.residual, .d = t.dx};
  return gemm::ptx_variant().launch(product_of(p), dtype, tensors, scratch, context);
}

Support can_run_narrow(const Problem& p, DType dtype) {
  if (p.residual && p.residual_scale != p.scale) return unsupported("needs residual_scale to be scale");
  return convolution::can_run_dgrad_ptx_sm80_narrow(forward_of(p), dtype);
}

constexpr Definition::Variant kVariants[] = {
    {kHost, {launch<convolution::launch_dgrad_host>, any_problem, of_forward<convolution::dgrad_host_workspace_bytes>}},
    {kNaive,
     {NOISEFLOOR_IF_CUDA(launch<convolution::launch_dgrad_naive>), of_forward<convolution::can_run_dgrad_naive>}},
    {kTiled,
     {NOISEFLOOR_IF_CUDA(launch<convolution::launch_dgrad_tiled>), of_forward<convolution::can_run_dgrad_tiled>}},
    {kTensorCoreSm80,
     {NOISEFLOOR_IF_SM80(launch<convolution::launch_dgrad_tensor_core_sm80>),
      of_forward<convolution::can_run_dgrad_tensor_core_sm80>,
      of_forward<convolution::dgrad_tensor_core_sm80_workspace_bytes>}},
    {kPtxSm90a,
     {NOISEFLOOR_IF_SM90A(launch<convolution::launch_dgrad_ptx_sm90a>),
      of_forward<convolution::can_run_dgrad_ptx_sm90a>, of_forward<convolution::dgrad_ptx_sm90a_workspace_bytes>},
     of_forward<convolution::dgrad_schedule_choices>},
    {{"ptx_sm90a_halo", Kind::ptx, Arch::sm90a},
     {NOISEFLOOR_IF_SM90A(launch<convolution::launch_dgrad_ptx_sm90a_halo>),
      of_forward<convolution::can_run_dgrad_ptx_sm90a_halo>},
     of_forward<convolution::dgrad_halo_choices>},
    {{"ptx_sm90a_pointwise", Kind::ptx, Arch::sm90a}, {NOISEFLOOR_IF_SM90A(launch_pointwise), can_run_pointwise}},
    {{"ptx_sm80_narrow", Kind::ptx, Arch::sm80},
     {NOISEFLOOR_IF_SM80(launch<convolution::launch_dgrad_ptx_sm80_narrow>), can_run_narrow,
      of_forward<convolution::dgrad_ptx_sm80_narrow_workspace_bytes>}},
};

}  // namespace

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::conv2d_dgrad
