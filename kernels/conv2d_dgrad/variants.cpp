// The variants of conv2d_dgrad, best last: kernels/convolution does the work.
#include "kernels/conv2d_dgrad/conv2d_dgrad.h"

namespace noisefloor::conv2d_dgrad {
namespace {

template <auto launcher>
Status launch(const Problem& p, DType dtype, const Tensors& t, const Scratch& scratch, const LaunchContext& context) {
  const convolution::DgradFactors factors{static_cast<float>(p.scale), static_cast<float>(p.residual_scale)};
  return launcher(forward_of(p), dtype, t, factors, scratch.workspace, context);
}

std::size_t host_workspace_bytes(const Problem& p, DType, const DeviceInfo&) {
  return convolution::dgrad_host_workspace_bytes(forward_of(p));
}

constexpr Definition::Variant kVariants[] = {
    {kHost, {launch<convolution::launch_dgrad_host>, any_problem, host_workspace_bytes}},
    {kNaive, not_written("next step of training")},
    {kTiled, not_written("next step of training")},
    {kTensorCoreSm80, not_written("the tensor cores' gradients are a later step of training")},
    {kPtxSm90a, not_written("the tensor cores' gradients are a later step of training")},
};

}  // namespace

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::conv2d_dgrad
