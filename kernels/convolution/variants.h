// The variants of an op that is a Convolution, written once for all such ops. For variants.cpp.
#pragma once

#include <string>

#include "kernels/convolution/convolution.h"
#include "kernels/core/variant.h"

namespace noisefloor::convolution {

// `direct` and `phased` give the op's problem as a Convolution: tap by tap, and as the tensor-core variants run it,
// which may be upsampled_phases(), whose weights are prepared. The op's tensors are Operands.
template <class Definition, auto direct, auto phased = direct>
struct Variants {
  using Problem = typename Definition::Problem;

  // What a function says of the convolution, as one of the problem.
  template <auto form, auto function, class... Rest>
  static auto of(const Problem& problem, Rest... rest) {
    return function(form(problem), rest...);
  }
  // Summed weights take the place of the stored ones.
  template <auto form, auto launcher>
  static Status launch(const Problem& problem, DType dtype, const Operands& tensors, const Scratch& scratch,
                       const LaunchContext& context) {
    const Convolution c = form(problem);
    Operands operands = tensors;
    if (c.phase_weights) operands.w = scratch.prepared;
    return launcher(c, dtype, operands, scratch, context);
  }
  template <auto preparer>
  static Status prepare(const Problem& problem, DType dtype, const Operands& tensors, void* prepared,
                        const LaunchContext& context) {
    const Convolution c = phased(problem);
    return preparer(c, dtype, tensors.w, c.phase_weights, prepared, context);
  }
  static std::size_t summed_bytes(const Problem& problem, DType dtype) {
    const Convolution c = phased(problem);
    return c.phase_weights ? summed_weight_bytes(c.cin, c.cout, dtype) : 0;
  }
  static Status sum_weights(const Problem& problem, DType dtype, const Operands& tensors, void* prepared,
                            const LaunchContext& context) {
    const Convolution c = phased(problem);
    return c.phase_weights ? sum_upsampled_weights(c.cin, c.cout, dtype, tensors.w, prepared, context) : success();
  }

  static constexpr typename Definition::Variant kVariants[] = {
      {kHost,
       {launch<phased, launch_host>, any_problem, nullptr, of<phased, host_prepared_bytes>, of<phased, prepare_host>}},
      {kNaive, {NOISEFLOOR_IF_CUDA((launch<direct, launch_naive>)), of<direct, can_run_naive>}},
      {kTiled, {NOISEFLOOR_IF_CUDA((launch<direct, launch_tiled>)), of<direct, can_run_tiled>}},
      {kTensorCoreSm80,
       {NOISEFLOOR_IF_SM80((launch<phased, launch_tensor_core_sm80>)), of<phased, can_run_tensor_core_sm80>,
        of<phased, tensor_core_sm80_workspace_bytes>, summed_bytes, NOISEFLOOR_IF_CUDA(sum_weights)}},
      {kPtxSm90a,
       {NOISEFLOOR_IF_SM90A((launch<phased, launch_ptx_sm90a>)), of<phased, can_run_ptx_sm90a>,
        of<phased, ptx_sm90a_workspace_bytes>, of<phased, ptx_sm90a_prepared_bytes>,
        NOISEFLOOR_IF_SM90A(prepare<prepare_ptx_sm90a>)},
       of<phased, schedule_choices>},
      {{"ptx_sm90a_halo", Kind::ptx, Arch::sm90a},
       {NOISEFLOOR_IF_SM90A((launch<phased, launch_ptx_sm90a_halo>)), of<phased, can_run_ptx_sm90a_halo>, nullptr,
        of<phased, ptx_sm90a_prepared_bytes>, NOISEFLOOR_IF_SM90A(prepare<prepare_ptx_sm90a>)},
       of<phased, halo_choices>},
      {{"ptx_sm80_narrow", Kind::ptx, Arch::sm80},
       {NOISEFLOOR_IF_SM80((launch<phased, launch_ptx_sm80_narrow>)), of<phased, can_run_ptx_sm80_narrow>, nullptr,
        of<phased, ptx_sm80_narrow_prepared_bytes>, NOISEFLOOR_IF_SM80(prepare<prepare_ptx_sm80_narrow>)}},
  };
};

}  // namespace noisefloor::convolution
