// ptx_sm90a_halo for bf16 with a norm in front or statistics behind: see ptx_halo.cuh.
#include "kernels/convolution/ptx_halo_launch.cuh"

namespace noisefloor::convolution {

Status launch_halo_fused_bf16(const Convolution& c, const Operands& o, const Schedule& schedule,
                              const LaunchContext& context) {
  constexpr std::make_integer_sequence<int, static_cast<int>(kHaloTiles.size())> all{};
  return launch_any_halo_tile<__nv_bfloat16, true>(c, DType::bf16, o, schedule, context, all);
}

}  // namespace noisefloor::convolution
