// layernorm, tiled: a team of 4 to 32 lanes per row, 16 bytes per lane and access; the row stays in registers.
//
// Better than naive: an eighth (fp32: a quarter) of the memory instructions, all loads of a row under way at once, x
// read once, and reductions by shuffles: no barrier, so that the rows of an SM are out of phase.
//
// Tile: 128 threads, rows of up to 40 elements a lane in registers, 1280 channels a warp. At most 80 registers; with a
// residual 64, of which two spill in 16 bits (8 resident blocks are worth more than they cost); fp32 rows of more than
// 640 channels 128. Longer rows: 256 threads, read three times, from L1 or L2 after the first. Shared memory: none.
//
// Bound: memory.
//
// Requires: channels that are a multiple of 16 bytes; rows below 2^31. Rows in registers honour programmatic dependent
// launch.
// Numerics: fp32; the mean, then the squares of the deviations from it.
// Source: original.
#include "kernels/device/launch.cuh"
#include "kernels/layernorm/device.cuh"
#include "kernels/ptx/griddepcontrol.cuh"

namespace noisefloor::layernorm {
namespace {

constexpr int kHeldThreads = 128;
template <int kPer, bool kResidual>
inline constexpr int kHeldBlocks = kPer > 5    ? 4
                                   : kResidual ? 8
                                               : 6;  // resident on an SM, at least
constexpr int kLongThreads = 256;

// A row of at most kPer vectors a lane.
template <class T, int kTeam, int kPer, bool kResidual>
__global__ void __launch_bounds__(kHeldThreads, kHeldBlocks<kPer, kResidual>)
    held_kernel(const __grid_constant__ Arguments<T> a) {
  ptx::griddepcontrol_wait();
  constexpr int kLanes = kVectorLanes<T>;
  // Two streams in and two out gain by the hints, one in and one out loses (docs/experiments/layernorm).
  constexpr CacheHint kLoad = kResidual ? CacheHint::read_only_once : CacheHint::keep;
  constexpr CacheHint kStore = kResidual ? CacheHint::once : CacheHint::keep;
  const int lane = static_cast<int>(threadIdx.x) % kTeam;
  const std::uint32_t row = blockIdx.x * (kHeldThreads / kTeam) + threadIdx.x / kTeam;
  const std::uint32_t known = min(row, a.rows - 1);  // teams of a warp shuffle together
  const std::int64_t place = place_of(a, known, lane);
  const auto fetch = [&](const void* from, uint4(&bits)[kPer]) {
    const T* const first = static_cast<const T*>(from) + place;
#pragma unroll
    for (int j = 0; j < kPer; ++j)
      bits[j] =
          lane + j * kTeam < a.vectors ? load_16_bytes<kLoad>(first + j * kTeam * kLanes) : make_uint4(0, 0, 0, 0);
  };
  uint4 x[kPer], residual[kPer];
  fetch(a.t.x, x);
  if constexpr (kResidual) fetch(a.t.residual, residual);
  ptx::griddepcontrol_launch_dependents();

  float s[kPer][kLanes];
  float sum = 0;
#pragma unroll
  for (int j = 0; j < kPer; ++j) {
    sum_vector<T>(x[j], residual[j], kResidual, s[j]);
    if (kResidual && row < a.rows && lane + j * kTeam < a.vectors)
      store_vector<T, kStore>(static_cast<T*>(a.t.sum) + place + j * kTeam * kLanes, s[j]);
#pragma unroll
    for (const float value : s[j]) sum += value;  // 0 behind the row's end
  }
  const float mean = team_sum<kTeam>(sum) * a.length_inverse;
  float squares = 0;
#pragma unroll
  for (int j = 0; j < kPer; ++j)
#pragma unroll
    for (float& value : s[j]) {
      value -= mean;
      if (lane + j * kTeam < a.vectors) squares += value * value;
    }
  const float rstd = rsqrtf(team_sum<kTeam>(squares) * a.length_inverse + a.eps);
  if (row >= a.rows) return;
#pragma unroll
  for (int j = 0; j < kPer; ++j) {
    const int v = lane + j * kTeam;
    if (v >= a.vectors) return;
    store_normalised<kStore>(a, rstd, row, v, s[j]);
  }
}

// A row of any length, a warp each.
template <class T>
__global__ void __launch_bounds__(kLongThreads) long_kernel(const __grid_constant__ Arguments<T> a) {
  constexpr int kLanes = kVectorLanes<T>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::uint32_t row = blockIdx.x * (kLongThreads / 32) + threadIdx.x / 32;
  if (row >= a.rows) return;  // a whole warp
  const T* const x = static_cast<const T*>(a.t.x) + place_of(a, row, 0);
  const T* const residual = a.t.residual ? static_cast<const T*>(a.t.residual) + place_of(a, row, 0) : nullptr;
  const auto load = [&](int v, float(&s)[kLanes]) {
    const uint4 bits = load_16_bytes(x + v * kLanes);
    uint4 other{};
    if (residual) other = load_16_bytes(residual + v * kLanes);
    sum_vector<T>(bits, other, residual != nullptr, s);
  };
  const Moments moments = row_moments<T, 32>(a, lane, load);
#pragma unroll 2
  for (int v = lane; v < a.vectors; v += 32) {
    float s[kLanes];
    load(v, s);
    finish_vector(a, moments, row, v, s);
  }
}

template <class T, int kTeam, int kPer>
Status launch_held(const Arguments<T>& a, const LaunchContext& context) {
  constexpr std::uint32_t kRows = kHeldThreads / kTeam;
  const std::uint32_t blocks = (a.rows + kRows - 1) / kRows;
  const LaunchShape shape{.grid = blocks, .block = kHeldThreads, .programmatic = context.programmatic_launch};
  const auto kernel = a.t.residual ? held_kernel<T, kTeam, kPer, true> : held_kernel<T, kTeam, kPer, false>;
  return launch_kernel("layernorm held_kernel", kernel, shape, context.stream, a);
}

}  // namespace

Status launch_tiled(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext& context) {
  return with_type(dtype, [&]<class T>(T) {
    const Arguments<T> a = make_arguments<T>(p, t);
    if (a.vectors <= 32 * 5)
      return with_team(a.vectors, [&](auto team) { return launch_held<T, team(), 5>(a, context); });
    if constexpr (sizeof(T) == 4) {
      if (a.vectors <= 32 * 10) return launch_held<T, 32, 10>(a, context);
    }
    constexpr std::uint32_t kRows = kLongThreads / 32;
    return launch_kernel("layernorm long_kernel", long_kernel<T>,
                         {.grid = (a.rows + kRows - 1) / kRows, .block = kLongThreads}, context.stream, a);
  });
}

}  // namespace noisefloor::layernorm
