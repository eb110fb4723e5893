// layernorm, tiled: a team of 4 to 32 lanes per row, 16 bytes per lane and access.
//
// Better than naive: an eighth (fp32: a quarter) of the memory instructions, moments in one pass about the row's first
// element, and a reduction by shuffles: no barrier, so that the rows of an SM are out of phase.
//
// Tile: 256 threads; the second pass over the row reads it from L1 or L2. Shared memory: none.
//
// Bound: memory; limited by loads in flight, of which a lane has one or two at a time.
//
// Requires: channels that are a multiple of 16 bytes; rows below 2^31.
// Numerics: fp32 sums about the row's first element.
// Source: original.
#include "kernels/layernorm/device.cuh"

namespace noisefloor::layernorm {
namespace {

constexpr int kThreads = 256;

template <class T, int kTeam>
__global__ void __launch_bounds__(kThreads) tiled_kernel(const Arguments<T> a) {
  constexpr int kLanes = kVectorLanes<T>;
  const int lane = static_cast<int>(threadIdx.x) % kTeam;
  const std::uint32_t row = blockIdx.x * (kThreads / kTeam) + threadIdx.x / kTeam;
  const std::uint32_t known = min(row, a.rows - 1);  // teams of a warp shuffle together
  const std::int64_t first = static_cast<std::int64_t>(known) * a.vectors * kLanes;
  const T* const x = static_cast<const T*>(a.t.x) + first;
  const T* const residual = a.t.residual ? static_cast<const T*>(a.t.residual) + first : nullptr;
  const auto load = [&](int v, float(&s)[kLanes]) {
    const uint4 bits = load_16_bytes(x + v * kLanes);
    uint4 other{};
    if (residual) other = load_16_bytes(residual + v * kLanes);
    sum_vector<T>(bits, other, residual != nullptr, s);
  };
  const float origin = to_float(x[0]) + (residual ? to_float(residual[0]) : 0.0f);
  const Moments moments = row_moments<T, kTeam>(a, origin, lane, load);
  if (row >= a.rows) return;
#pragma unroll 2
  for (int v = lane; v < a.vectors; v += kTeam) {
    float s[kLanes];
    load(v, s);
    finish_vector(a, moments, row, v, s);
  }
}

}  // namespace

Status launch_tiled(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext& context) {
  return with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    const Arguments<T> a = make_arguments<T>(p, t);
    return with_team(a.vectors, [&](auto team) {
      constexpr std::uint32_t kRows = kThreads / team();
      tiled_kernel<T, team()><<<(a.rows + kRows - 1) / kRows, kThreads, 0, context.stream>>>(a);
      return launch_status("layernorm tiled_kernel");
    });
  });
}

}  // namespace noisefloor::layernorm
