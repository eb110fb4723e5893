// ptx_sm90a_halo for fp16: see ptx_halo.cuh.
#include "kernels/convolution/ptx_halo_launch.cuh"

namespace noisefloor::convolution {

Status launch_halo_fp16(const Convolution& c, const Operands& o, const Schedule& schedule,
                        const LaunchContext& context) {
  constexpr std::make_integer_sequence<int, static_cast<int>(kHaloTiles.size())> all{};
  return launch_any_halo_tile<__half, false>(c, DType::fp16, o, schedule, context, all);
}

}  // namespace noisefloor::convolution
