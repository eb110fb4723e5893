// The ladder of q_sample. What each rung does better than the one below is in README.md.
#include "kernels/device/stream_limits.h"
#include "kernels/q_sample/launchers.h"

namespace noisefloor::q_sample {
namespace {

constexpr Definition::Variant kVariants[] = {
    {kHost, launch_host},
    {kNaive, NOISEFLOOR_IF_CUDA(launch_naive)},
    {kTensorCoreSm80, {NOISEFLOOR_IF_SM80(launch_tensor_core_sm80), half_images_stream}},
    {kPtxSm90a, {NOISEFLOOR_IF_SM90A(launch_ptx_sm90a), images_stream}},
    {kTiled, {NOISEFLOOR_IF_CUDA(launch_tiled), images_stream}},
};

}  // namespace

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::q_sample
