// The ladder of conv2d: kernels/convolution does the work. What each rung does better than the one below is in
// README.md.
#include "kernels/core/variant.h"

#include "kernels/conv2d/conv2d.h"

namespace noisefloor::conv2d {
namespace {

using convolution::Launcher;

template <Form form, Launcher launcher>
Status launch(const Problem& problem, DType dtype, const Tensors& tensors, const Scratch& scratch,
              const LaunchContext& context) {
  return launcher(describe(problem, form), dtype, operands(tensors), scratch, context);
}

template <Form form, Support (*can_run)(const convolution::Convolution&, DType)>
Support supports(const Problem& problem, DType dtype) {
  return can_run(describe(problem, form), dtype);
}

Support can_run_host(const Problem&, DType) {
  return supported();
}

std::size_t host_prepared_bytes(const Problem& problem, DType) {
  return convolution::host_prepared_bytes(describe(problem, Form::phased));
}

Status prepare_host(const Problem& problem, DType dtype, const Tensors& tensors, void* prepared, const LaunchContext&) {
  return convolution::prepare_host(describe(problem, Form::phased), dtype, tensors.w, problem.upsample, prepared);
}

constexpr Variant<Definition> kVariants[] = {
    {"host", Kind::host, Arch::host, launch<Form::phased, convolution::launch_host>, can_run_host, nullptr,
     host_prepared_bytes, prepare_host},
    {"naive", Kind::naive, Arch::any_gpu, NOISEFLOOR_IF_CUDA((launch<Form::direct, convolution::launch_naive>)),
     supports<Form::direct, convolution::can_run_naive>},
};

}  // namespace

std::span<const Variant<Definition>> Definition::variants() {
  return kVariants;
}

}  // namespace noisefloor::conv2d
