// layernorm, tiled: a team of 4 to 32 lanes per row, or of up to 32 warps, 16 bytes per lane and access.
//
// Better than naive: an eighth (fp32: a quarter) of the memory instructions, all loads of a row under way at once, x
// read once into registers, and reductions by shuffles: no barrier, so that the rows of an SM are out of phase. Teams
// of several warps have one: the warps take the moments of their own parts, then merge them all.
//
// Tile: 128 threads, 40 elements a lane, 1280 channels a warp. At most 80 registers; with a residual 64 (8 resident
// blocks). Teams of warps, of at most 64 registers: rows of more vectors, four a thread; and rows so few that one block
// an SM holds them at one or two, with their parameters loaded early: such a launch is one chain of latencies, and
// blocks start one after the other. Shared memory: 256 bytes.
//
// Bound: memory.
// Requires: rows of a multiple of 16 bytes, 64 KiB at most; fewer than 2^31. Honours programmatic dependent launch.
// Numerics: fp32; the mean, then the squares of the deviations from it.
// Source: original.
#include "kernels/device/launch.cuh"
#include "kernels/layernorm/device.cuh"
#include "kernels/ptx/griddepcontrol.cuh"
#include "kernels/ptx/prefetch.cuh"

namespace noisefloor::layernorm {
namespace {

constexpr int kHeldThreads = 128;
constexpr int kWideTeam = 0;  // warps
constexpr int kWideThreads = 1024;
// Of kHeldThreads, or at most kWideThreads, each; resident on an SM, at least.
template <int kTeam, bool kResidual>
inline constexpr int kHeldBlocks = kTeam == kWideTeam ? 1
                                   : kResidual        ? 8
                                                      : 6;

// A row's moments from the parts of its warps, of `share` vectors each; threadIdx.y is its place in the block.
template <bool kWide, class T>
__device__ __forceinline__ Moments merge_warps(const Arguments<T>& a, const Part& part, int share) {
  if (!kWide || blockDim.x == 32) return {part.mean, rsqrtf(part.squares * a.length_inverse + a.eps)};
  __shared__ Part shared[kWideThreads / 32];
  Part* const parts = shared + threadIdx.y * (blockDim.x / 32);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = part;
  __syncthreads();
  return merge(a, parts, share);
}

// A row of at most kPer vectors a lane, by kTeam lanes of a warp, or by blockDim.x threads whose warps take 32 * kPer
// vectors each.
template <class T, int kTeam, int kPer, bool kResidual>
__global__ void __launch_bounds__(kTeam == kWideTeam ? kWideThreads : kHeldThreads, kHeldBlocks<kTeam, kResidual>)
    held_kernel(const __grid_constant__ Arguments<T> a) {
  constexpr bool kWide = kTeam == kWideTeam, kEarly = kWide && kPer <= 2;
  constexpr int kLanes = kVectorLanes<T>, kStride = kWide ? 32 : kTeam;
  // Two streams in and two out gain by the hints, one in and one out loses (docs/experiments/layernorm).
  constexpr CacheHint kLoad = kResidual ? CacheHint::read_only_once : CacheHint::keep;
  constexpr CacheHint kStore = kResidual ? CacheHint::once : CacheHint::keep;
  const int begin = kWide ? static_cast<int>(threadIdx.x) / 32 * (32 * kPer) : 0;
  const int lane = begin + static_cast<int>(threadIdx.x) % kStride;  // its first vector
  const std::uint32_t row =
      kWide ? blockIdx.x * blockDim.y + threadIdx.y : blockIdx.x * (kHeldThreads / kStride) + threadIdx.x / kStride;
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
  const Moments moments = merge_warps<kWide>(a, {mean, squares}, 32 * kPer);
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

// Blocks of `rows` rows.
template <class T, int kTeam, int kPer>
Status launch_held(const Arguments<T>& a, const LaunchContext& context, std::uint32_t rows, dim3 block) {
  const LaunchShape shape{
      .grid = (a.rows + rows - 1) / rows, .block = block, .programmatic = context.programmatic_launch};
  const auto kernel = a.t.residual ? held_kernel<T, kTeam, kPer, true> : held_kernel<T, kTeam, kPer, false>;
  return launch_kernel("layernorm held_kernel", kernel, shape, context.stream, a);
}

// Warps of a row of so many vectors.
template <int kPer>
std::uint32_t warps_of(int vectors) {
  return (static_cast<std::uint32_t>(vectors) + 32 * kPer - 1) / (32 * kPer);
}

template <class T, int kPer>
Status launch_wide(const Arguments<T>& a, const LaunchContext& context, std::uint32_t rows) {
  return launch_held<T, kWideTeam, kPer>(a, context, rows, dim3(32 * warps_of<kPer>(a.vectors), rows));
}

template <class T, int kTeam>
Status launch_team(const Arguments<T>& a, const LaunchContext& context) {
  return launch_held<T, kTeam, 5>(a, context, kHeldThreads / kTeam, kHeldThreads);
}

}  // namespace

Status launch_tiled(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext& context) {
  return with_type(dtype, [&]<class T>(T) {
    const Arguments<T> a = make_arguments<T>(p, t);
    // One block an SM, if that holds its rows.
    const std::uint32_t sms = static_cast<std::uint32_t>(context.device->sm_count), rows = (a.rows + sms - 1) / sms;
    if (rows * warps_of<1>(a.vectors) <= kWideThreads / 32) return launch_wide<T, 1>(a, context, rows);
    if (rows * warps_of<2>(a.vectors) <= kWideThreads / 32) return launch_wide<T, 2>(a, context, rows);
    if (a.vectors > 32 * 5) return launch_wide<T, 4>(a, context, 1);
    return with_team<4>(team_of(a.vectors), [&](auto team) { return launch_team<T, team()>(a, context); });
  });
}

}  // namespace noisefloor::layernorm
