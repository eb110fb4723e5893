// The variants of conv2d_dgrad, best last: kernels/convolution does the work.
#include "kernels/conv2d_dgrad/conv2d_dgrad.h"
#include "kernels/core/op.h"

namespace noisefloor::conv2d_dgrad {
namespace {

template <auto launcher>
Status launch(const Problem& p, DType dtype, const Tensors& t, const Scratch& scratch, const LaunchContext& context) {
  if (const Status status = definition.check_pointers(p, t); !status.ok()) return status;
  const convolution::DgradFactors factors{static_cast<float>(p.scale), static_cast<float>(p.residual_scale)};
  return launcher(forward_of(p), dtype, t, factors, scratch.workspace, context);
}

template <auto function>
Support can_run(const Problem& p, DType dtype) {
  return function(forward_of(p), dtype);
}

std::size_t host_workspace_bytes(const Problem& p, DType, const DeviceInfo&) {
  return convolution::dgrad_host_workspace_bytes(forward_of(p));
}

constexpr NotWritten kLater = not_written("gradients on tensor cores are a later step of training");
constexpr Definition::Variant kVariants[] = {
    {kHost, {launch<convolution::launch_dgrad_host>, any_problem, host_workspace_bytes}},
    {kNaive, {NOISEFLOOR_IF_CUDA(launch<convolution::launch_dgrad_naive>), can_run<convolution::can_run_dgrad_naive>}},
    {kTiled, {NOISEFLOOR_IF_CUDA(launch<convolution::launch_dgrad_tiled>), can_run<convolution::can_run_dgrad_tiled>}},
    {kTensorCoreSm80, kLater},
    {kPtxSm90a, kLater},
};

}  // namespace

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::conv2d_dgrad
