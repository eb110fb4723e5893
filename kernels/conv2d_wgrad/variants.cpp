// The variants of conv2d_wgrad, best last: kernels/convolution does the work, of 1x1 layers gemm.
#include "kernels/conv2d_wgrad/conv2d_wgrad.h"
#include "kernels/convolution/wgrad_cut.h"
#include "kernels/core/op.h"
#include "kernels/gemm/gemm.h"

namespace noisefloor::conv2d_wgrad {
namespace {

using convolution::of_forward;

template <auto launcher>
Status launch(const Problem& p, DType dtype, const Tensors& t, const Scratch& scratch, const LaunchContext& context) {
  if (const Status status = definition.check_pointers(p, t); !status.ok()) return status;
  return launcher(forward_of(p), dtype, t, static_cast<float>(p.scale), scratch.workspace, context);
}

// Of a 1x1 convolution: dw[cout, cin] = scale * dy[pixels, cout]^T x[pixels, cin], and dbias the row sums.
gemm::Problem product_of(const Problem& p) {
  return {.m = p.cout,
          .n = p.cin,
          .k = p.n * p.h * p.w,
          .scale = p.scale,
          .bias = false,
          .layout = gemm::Layout::tn,
          .to = gemm::Target::fp32,
          .row_sums = p.bias};
}
Support can_run_pointwise(const Problem& p, DType dtype) {
  if (const Support support = takes_pointwise(p); !support) return support;
  if (p.image_shift) return unsupported("has no sums of each image");
  return gemm::ptx_variant().can_run(product_of(p), dtype);
}
std::size_t pointwise_workspace_bytes(const Problem& p, DType dtype, const DeviceInfo& device) {
  return gemm::ptx_variant().workspace_bytes(product_of(p), dtype, device);
}
[[maybe_unused]] Status launch_pointwise(const Problem& p, DType dtype, const Tensors& t, const Scratch& scratch,
                                         const LaunchContext& context) {
  const gemm::Tensors tensors{.a = t.dy, .b = t.x, .d = t.dw, .row_sums = t.dbias};
  LaunchContext of_product = context;
  of_product.constant_inputs = 0;  // whose bits are of tensors in another order
  return gemm::ptx_variant().launch(product_of(p), dtype, tensors, scratch, of_product);
}

std::size_t naive_workspace_bytes(const Problem& p, DType, const DeviceInfo&) {
  return convolution::wgrad_channel_sums_bytes(forward_of(p), p.bias);
}
std::size_t tiled_workspace_bytes(const Problem& p, DType, const DeviceInfo& device) {
  const convolution::Convolution c = forward_of(p);
  return convolution::wgrad_channel_sums_bytes(c, p.bias) + convolution::wgrad_parts_bytes(c, device);
}

std::size_t ptx_sm90a_workspace_bytes(const Problem& p, DType dtype, const DeviceInfo& device) {
  return convolution::WgradWorkspace(forward_of(p), dtype, p.image_shift, device.sm_count).bytes;
}

constexpr Definition::Variant kVariants[] = {
    {kHost, {launch<convolution::launch_wgrad_host>, any_problem, of_forward<convolution::wgrad_host_workspace_bytes>}},
    {kNaive,
     {NOISEFLOOR_IF_CUDA(launch<convolution::launch_wgrad_naive>), of_forward<convolution::can_run_wgrad_naive>,
      naive_workspace_bytes}},
    {kTiled,
     {NOISEFLOOR_IF_CUDA(launch<convolution::launch_wgrad_tiled>), of_forward<convolution::can_run_wgrad_tiled>,
      tiled_workspace_bytes}},
    {kTensorCoreSm80,
     {NOISEFLOOR_IF_SM80(launch<convolution::launch_wgrad_tensor_core_sm80>),
      of_forward<convolution::can_run_wgrad_tensor_core_sm80>, tiled_workspace_bytes}},
    {kPtxSm90a,
     {NOISEFLOOR_IF_SM90A(launch<convolution::launch_wgrad_ptx_sm90a>),
      of_forward<convolution::can_run_wgrad_ptx_sm90a>, ptx_sm90a_workspace_bytes}},
    {{"ptx_sm90a_pointwise", Kind::ptx, Arch::sm90a},
     {NOISEFLOOR_IF_SM90A(launch_pointwise), can_run_pointwise, pointwise_workspace_bytes}},
};

}  // namespace

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::conv2d_wgrad
