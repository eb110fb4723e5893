// ptx_sm90a for fp16: see ptx_sm90a.cuh.
#include "kernels/convolution/ptx_sm90a.cuh"

namespace noisefloor::convolution {

template <>
Status launch_ptx<__half>(const Convolution& c, DType dtype, const Operands& o, const Schedule& schedule,
                          const LaunchContext& context) {
  constexpr std::make_integer_sequence<int, static_cast<int>(kTiles.size())> all{};
  return launch_any_tile<__half>(c, dtype, o, schedule, context, all);
}

}  // namespace noisefloor::convolution
