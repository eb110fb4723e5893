// The variants of an op that is a Convolution, written once for all such ops. For variants.cpp.
#pragma once

#include "kernels/convolution/convolution.h"
#include "kernels/core/variant.h"

namespace noisefloor::convolution {

inline constexpr VariantInfo kPtxSm80Narrow{"ptx_sm80_narrow", Kind::ptx, Arch::sm80};
inline constexpr VariantInfo kPtxSm90aHalo{"ptx_sm90a_halo", Kind::ptx, Arch::sm90a};

// `Rules` say how the op is one:
//   static Convolution direct(const Problem&);   tap by tap
//   static Convolution phased(const Problem&);   as the tensor-core variants run it
//   static Operands operands(const Tensors&);
//   static bool sums_weights(const Problem&);    whether phased() is upsampled_phases(), whose weights are prepared
template <class Definition, class Rules>
struct Variants {
  using Problem = typename Definition::Problem;
  using Tensors = typename Definition::Tensors;

  static std::size_t host_prepared_bytes(const Problem& problem, DType) {
    return convolution::host_prepared_bytes(Rules::phased(problem));
  }
  static Status prepare_host(const Problem& problem, DType dtype, const Tensors& tensors, void* prepared,
                             const LaunchContext&) {
    return convolution::prepare_host(Rules::phased(problem), dtype, Rules::operands(tensors),
                                     Rules::sums_weights(problem), prepared);
  }

  template <Launcher launcher>
  static Status launch_direct(const Problem& problem, DType dtype, const Tensors& tensors, const Scratch& scratch,
                              const LaunchContext& context) {
    return launcher(Rules::direct(problem), dtype, Rules::operands(tensors), scratch, context);
  }
  // Summed weights take the place of the stored ones.
  template <Launcher launcher>
  static Status launch_phased(const Problem& problem, DType dtype, const Tensors& tensors, const Scratch& scratch,
                              const LaunchContext& context) {
    Operands operands = Rules::operands(tensors);
    if (Rules::sums_weights(problem)) operands.w = scratch.prepared;
    return launcher(Rules::phased(problem), dtype, operands, scratch, context);
  }
  template <ChoiceLauncher launcher>
  static Status launch_choice(const Problem& problem, DType dtype, const Tensors& tensors, const Scratch& scratch,
                              const LaunchContext& context, std::string_view choice) {
    Operands operands = Rules::operands(tensors);
    if (Rules::sums_weights(problem)) operands.w = scratch.prepared;
    return launcher(Rules::phased(problem), dtype, operands, scratch, context, choice);
  }
  template <ChoiceLister lister>
  static std::vector<Choice> list_choices(const Problem& problem, DType dtype, const DeviceInfo& device) {
    return lister(Rules::phased(problem), dtype, device);
  }
  template <Support (*can_run)(const Convolution&, DType)>
  static Support direct_supports(const Problem& problem, DType dtype) {
    return can_run(Rules::direct(problem), dtype);
  }
  template <Support (*can_run)(const Convolution&, DType)>
  static Support phased_supports(const Problem& problem, DType dtype) {
    return can_run(Rules::phased(problem), dtype);
  }
  template <std::size_t (*bytes)(const Convolution&, DType, const DeviceInfo&)>
  static std::size_t workspace_bytes(const Problem& problem, DType dtype, const DeviceInfo& device) {
    return bytes(Rules::phased(problem), dtype, device);
  }

  static std::size_t summed_bytes(const Problem& problem, DType dtype) {
    const Convolution c = Rules::phased(problem);
    return Rules::sums_weights(problem) ? summed_weight_bytes(c.cin, c.cout, dtype) : 0;
  }
  static Status sum_weights(const Problem& problem, DType dtype, const Tensors& tensors, void* prepared,
                            const LaunchContext& context) {
    const Convolution c = Rules::phased(problem);
    if (!Rules::sums_weights(problem)) return success();
    return sum_upsampled_weights(c.cin, c.cout, dtype, Rules::operands(tensors).w, prepared, context);
  }
  static std::size_t ptx_prepared_bytes(const Problem& problem, DType dtype) {
    return ptx_sm90a_prepared_bytes(Rules::phased(problem), dtype);
  }
  static Status prepare_ptx(const Problem& problem, DType dtype, const Tensors& tensors, void* prepared,
                            const LaunchContext& context) {
    return prepare_ptx_sm90a(Rules::phased(problem), dtype, Rules::operands(tensors).w, Rules::sums_weights(problem),
                             prepared, context);
  }

  static Status launch_narrow(const Problem& problem, DType dtype, const Tensors& tensors, const Scratch& scratch,
                              const LaunchContext& context) {
    return launch_ptx_sm80_narrow(Rules::phased(problem), dtype, Rules::operands(tensors), scratch, context);
  }
  static std::size_t narrow_prepared_bytes(const Problem& problem, DType dtype) {
    return ptx_sm80_narrow_prepared_bytes(Rules::phased(problem), dtype, Rules::sums_weights(problem));
  }
  static Status prepare_narrow(const Problem& problem, DType dtype, const Tensors& tensors, void* prepared,
                               const LaunchContext& context) {
    return prepare_ptx_sm80_narrow(Rules::phased(problem), dtype, Rules::operands(tensors).w,
                                   Rules::sums_weights(problem), prepared, context);
  }

  static constexpr typename Definition::Choices kSchedules{list_choices<schedule_choices>,
                                                           NOISEFLOOR_IF_SM90A(launch_choice<launch_ptx_sm90a_choice>)};
  static constexpr typename Definition::Choices kHaloSchedules{
      list_choices<halo_choices>, NOISEFLOOR_IF_SM90A(launch_choice<launch_ptx_sm90a_halo_choice>)};

  static constexpr typename Definition::Variant kVariants[] = {
      {kHost, {launch_phased<launch_host>, any_problem, nullptr, host_prepared_bytes, prepare_host}},
      {kNaive, {NOISEFLOOR_IF_CUDA(launch_direct<launch_naive>), direct_supports<can_run_naive>}},
      {kTiled, {NOISEFLOOR_IF_CUDA(launch_direct<launch_tiled>), direct_supports<can_run_tiled>}},
      {kTensorCoreSm80,
       {NOISEFLOOR_IF_SM80(launch_phased<launch_tensor_core_sm80>), phased_supports<can_run_tensor_core_sm80>,
        workspace_bytes<tensor_core_sm80_workspace_bytes>, summed_bytes, NOISEFLOOR_IF_CUDA(sum_weights)}},
      {kPtxSm90a,
       {NOISEFLOOR_IF_SM90A(launch_phased<launch_ptx_sm90a>), phased_supports<can_run_ptx_sm90a>,
        workspace_bytes<ptx_sm90a_workspace_bytes>, ptx_prepared_bytes, NOISEFLOOR_IF_SM90A(prepare_ptx)},
       &kSchedules},
      {kPtxSm90aHalo,
       {NOISEFLOOR_IF_SM90A(launch_phased<launch_ptx_sm90a_halo>), phased_supports<can_run_ptx_sm90a_halo>, nullptr,
        ptx_prepared_bytes, NOISEFLOOR_IF_SM90A(prepare_ptx)},
       &kHaloSchedules},
      {kPtxSm80Narrow,
       {NOISEFLOOR_IF_SM80(launch_narrow), phased_supports<can_run_ptx_sm80_narrow>, nullptr, narrow_prepared_bytes,
        NOISEFLOOR_IF_SM80(prepare_narrow)}},
  };
};

}  // namespace noisefloor::convolution
