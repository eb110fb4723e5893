// layernorm, tiled: a team of 4 to 32 lanes per row, or a block of up to 1024 threads, 16 bytes per lane and access.
//
// Better than naive: an eighth (fp32: a quarter) of the memory instructions, all loads of a row under way at once, x
// read once into registers, and reductions by shuffles: no barrier, so that the rows of an SM are out of phase. A block
// has one: its warps take the moments of their own parts, then merge them all.
//
// Tile: 128 threads, at most five vectors a lane, 80 registers; with a residual, or of fewer vectors, 64. Blocks, of at
// most 64 registers: rows of more vectors, four a thread; and rows so few that at two a thread all are resident. Where
// a thread has at most two, parameters are loaded early: such a launch is one chain of latencies. Shared memory: 256
// bytes.
//
// Bound: memory.
// Requires: rows of a multiple of 16 bytes, 64 KiB at most; fewer than 2^31. Honours programmatic dependent launch.
// Numerics: fp32; the mean, then the squares of the deviations from it.
// Source: original.
#include <algorithm>

#include "kernels/device/launch.cuh"
#include "kernels/layernorm/device.cuh"
#include "kernels/ptx/griddepcontrol.cuh"
#include "kernels/ptx/prefetch.cuh"

namespace noisefloor::layernorm {
namespace {

constexpr int kHeldThreads = 128;
constexpr int kWideTeam = 0;  // a row is a block's
constexpr int kWideThreads = 1024;
// Of kHeldThreads or kWideThreads each, resident on an SM, at least.
template <int kTeam, int kPer, bool kResidual>
inline constexpr int kHeldBlocks = kTeam == kWideTeam        ? 1
                                   : kPer == 5 && !kResidual ? 6
                                                             : 8;

// A row's moments from the parts of a block's warps, of `share` vectors each.
template <class T>
__device__ __forceinline__ Moments merge_warps(const Arguments<T>& a, const Part& part, int share) {
  __shared__ Part parts[kWideThreads / 32];
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = part;
  __syncthreads();
  return merge(a, parts, share);
}

// A row of at most kPer vectors a lane, by kTeam lanes of a warp, or by a block whose warps take 32 * kPer vectors
// each.
template <class T, int kTeam, int kPer, bool kResidual>
__global__ void __launch_bounds__(kTeam == kWideTeam ? kWideThreads : kHeldThreads, kHeldBlocks<kTeam, kPer, kResidual>)
    held_kernel(const __grid_constant__ Arguments<T> a) {
  constexpr bool kWide = kTeam == kWideTeam, kEarly = kPer <= 2;
  constexpr int kLanes = kVectorLanes<T>, kStride = kWide ? 32 : kTeam;
  // Two streams in and two out gain by the hints, one in and one out loses (docs/experiments/layernorm).
  constexpr CacheHint kLoad = kResidual ? CacheHint::read_only_once : CacheHint::keep;
  constexpr CacheHint kStore = kResidual ? CacheHint::once : CacheHint::keep;
  const int begin = kWide ? static_cast<int>(threadIdx.x) / 32 * (32 * kPer) : 0;
  const int lane = begin + static_cast<int>(threadIdx.x) % kStride;  // its first vector
  const std::uint32_t row = kWide ? blockIdx.x : blockIdx.x * (kHeldThreads / kStride) + threadIdx.x / kStride;
  const std::uint32_t known = min(row, a.rows - 1);  // teams of a warp shuffle together
  // Parameters to L2 ahead of their first use. A prefetch hands no value over, so it need not wait. Lanes that hold x
  // and a residual would spill for it.
  if (!kEarly && (kWide || !kResidual) && blockIdx.x == 0) {
#pragma unroll 1
    for (int v = static_cast<int>(threadIdx.x); v < a.vectors; v += static_cast<int>(blockDim.x))
      each_parameter(a, [&](int which) { ptx::prefetch_l2(parameter(a, 0, v, which)); });
  }
  ptx::griddepcontrol_wait();
  const std::int64_t place = place_of(a, known, lane);
  const auto fetch = [&](const void* from, uint4(&bits)[kPer]) {
    const T* const first = static_cast<const T*>(from) + place;
#pragma unroll
    for (int j = 0; j < kPer; ++j)
      bits[j] =
          lane + j * kStride < a.vectors ? load_16_bytes<kLoad>(first + j * kStride * kLanes) : make_uint4(0, 0, 0, 0);
  };
  uint4 x[kPer], residual[kPer];
  fetch(a.t.x, x);
  if constexpr (kResidual) fetch(a.t.residual, residual);
  uint4 parameters[kPer][4];
  if constexpr (kEarly) {
#pragma unroll
    for (int j = 0; j < kPer; ++j)
      if (lane + j * kStride < a.vectors)
        each_parameter(a,
                       [&](int which) { parameters[j][which] = load_parameter(a, known, lane + j * kStride, which); });
  }
  ptx::griddepcontrol_launch_dependents();

  float s[kPer][kLanes];
  float sum = 0;
#pragma unroll
  for (int j = 0; j < kPer; ++j) {
    sum_vector<T>(x[j], residual[j], kResidual, s[j]);
    if (kResidual && row < a.rows && lane + j * kStride < a.vectors)
      store_vector<T, kStore>(static_cast<T*>(a.t.sum) + place + j * kStride * kLanes, s[j]);
#pragma unroll
    for (const float value : s[j]) sum += value;  // 0 behind the row's end
  }
  const float mean = team_sum<kStride>(sum) * (kWide ? part_inverse(a, begin, 32 * kPer) : a.length_inverse);
  float squares = 0;
#pragma unroll
  for (int j = 0; j < kPer; ++j)
#pragma unroll
    for (float& value : s[j]) {
      value -= mean;
      if (lane + j * kStride < a.vectors) squares += value * value;
    }
  squares = team_sum<kStride>(squares);
  Moments moments{mean, rsqrtf(squares * a.length_inverse + a.eps)};
  if constexpr (kWide) moments = merge_warps(a, {mean, squares}, 32 * kPer);
  if (row >= a.rows) return;
  const float shift = (mean - moments.mean) * moments.rstd;
#pragma unroll
  for (int j = 0; j < kPer; ++j) {
    const int v = lane + j * kStride;
    if (v >= a.vectors) return;
#pragma unroll
    for (float& value : s[j]) value = value * moments.rstd + shift;
    store_normalised<kStore>(
        a, row, v, s[j], [&](int which) { return kEarly ? parameters[j][which] : load_parameter(a, row, v, which); });
  }
}

// Threads of a block that owns a row of so many vectors.
template <int kPer>
std::uint32_t wide_threads(int vectors) {
  return (static_cast<std::uint32_t>(vectors) + 32 * kPer - 1) / (32 * kPer) * 32;
}

template <class T, int kTeam, int kPer>
Status launch_held(const Arguments<T>& a, const LaunchContext& context) {
  LaunchShape shape{
      .grid = a.rows, .block = wide_threads<kPer>(a.vectors), .programmatic = context.programmatic_launch};
  if constexpr (kTeam != kWideTeam) {
    constexpr std::uint32_t kRows = kHeldThreads / kTeam;
    shape.grid = (a.rows + kRows - 1) / kRows;
    shape.block = kHeldThreads;
  }
  const auto kernel = a.t.residual ? held_kernel<T, kTeam, kPer, true> : held_kernel<T, kTeam, kPer, false>;
  return launch_kernel("layernorm held_kernel", kernel, shape, context.stream, a);
}

// Whether blocks of two vectors a thread are all resident at once. Eight an SM at most: they start at about one a
// nanosecond, so that of more of them the start would be most of the time.
template <class T>
bool at_once(const Arguments<T>& a, std::uint32_t sms) {
  return a.rows <= std::min(8u, kWideThreads / wide_threads<2>(a.vectors)) * sms;
}

// Whether a row is better a warp's, of four vectors a lane, than a team's of five: where both are of a warp; and where
// a launch of one or two waves has fewer rows' places idle, by the blocks that an SM holds.
template <class T>
bool four_are_better(const Arguments<T>& a, std::uint32_t sms) {
  if (a.vectors <= 32 * 2 || a.vectors > 32 * 4) return false;
  const auto places = [&](std::uint32_t of_sm) { return (a.rows + of_sm * sms - 1) / (of_sm * sms) * of_sm; };
  const std::uint32_t four = places(8 * 4), five = places((a.t.residual ? 8 : 6) * 8);
  return team_of(a.vectors) == 32 || (four <= 2 * 8 * 4 && four < five);
}

}  // namespace

Status launch_tiled(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext& context) {
  return with_type(dtype, [&]<class T>(T) {
    const Arguments<T> a = make_arguments<T>(p, t);
    const std::uint32_t sms = static_cast<std::uint32_t>(context.device->sm_count);
    const bool few = a.rows <= 32 * sms;  // one wave of a warp each, of 64 registers a lane
    if (few && a.vectors <= 32) return launch_held<T, 32, 1>(a, context);
    if (few && a.vectors <= 32 * 2) return launch_held<T, 32, 2>(a, context);
    if (at_once(a, sms)) return launch_held<T, kWideTeam, 2>(a, context);
    if (four_are_better(a, sms)) return launch_held<T, 32, 4>(a, context);
    if (a.vectors > 32 * 5) return launch_held<T, kWideTeam, 4>(a, context);
    return with_team<4>(team_of(a.vectors), [&](auto team) { return launch_held<T, team(), 5>(a, context); });
  });
}

}  // namespace noisefloor::layernorm
