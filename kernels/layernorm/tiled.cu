// layernorm, tiled: a team of 4 to 32 lanes per row or four, or a block of up to 1024 threads, 16 bytes per lane and
// access.
//
// Better than naive: an eighth (fp32: a quarter) of the memory instructions, all loads of a row under way at once, x
// read once into registers, and reductions by shuffles: no barrier, so that the rows of an SM are out of phase. A block
// has one: its warps take the moments of their own parts, then merge them all.
//
// Tile: up to 256 threads. Few rows: a warp a row, up to five vectors a lane. Many narrow rows: four vectors a lane, of
// four or two rows, whose parameters are then loaded once. Blocks: longer rows, four vectors a thread, and rows so few
// that at two a thread all are resident. 64 registers, 80 of five vectors; parameters are loaded beside x where those
// hold both. Shared memory: 256 bytes.
//
// Bound: memory.
// Requires: rows of a multiple of 16 bytes, 64 KiB at most; fewer than 2^31. Honours programmatic dependent launch.
// Numerics: fp32; the mean, then the squares of the deviations from it. Source: original.
#include <algorithm>

#include "kernels/device/launch.cuh"
#include "kernels/layernorm/device.cuh"
#include "kernels/ptx/griddepcontrol.cuh"
#include "kernels/ptx/prefetch.cuh"

namespace noisefloor::layernorm {
namespace {

constexpr int kHeldThreads = 256;
constexpr int kWideTeam = 0;  // a row is a block's
constexpr int kWideThreads = 1024;

// Parameters are loaded beside x where registers hold both.
template <int kPer, bool kRare>
inline constexpr bool kEarly = !kRare && kPer <= 3;
// Of kHeldThreads or kWideThreads each, resident on an SM, at least.
template <int kTeam, int kPer, int kRows>
inline constexpr int kHeldBlocks = kTeam == kWideTeam                       ? 1
                                   : kPer == 5 || (kPer == 2 && kRows == 2) ? 3
                                                                            : 4;

// Gamma and beta, or scale and shift where those are not.
struct Pair {
  const void *factor, *addend;
};

template <class T>
struct HeldArguments : Arguments<T> {
  Pair pair;
  std::uint32_t row_vectors, image_vectors;  // from an image's pair to the next one's
  bool plus_one;                             // to the factor
};

template <class T>
HeldArguments<T> held_arguments(const Problem& p, const Tensors& t) {
  HeldArguments<T> a;
  static_cast<Arguments<T>&>(a) = make_arguments<T>(p, t);
  a.row_vectors = static_cast<std::uint32_t>(a.vectors);
  a.pair = t.gamma ? Pair{t.gamma, t.beta} : Pair{t.scale, t.shift};
  a.plus_one = !t.gamma && t.scale;
  a.image_vectors = a.plus_one ? a.row_vectors : 0;
  return a;
}

// A row's moments from the parts of a block's warps, of `share` vectors each.
template <class T>
__device__ __forceinline__ Moments merge_warps(const Arguments<T>& a, const Part& part, int share) {
  __shared__ Part parts[kWideThreads / 32];
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = part;
  __syncthreads();
  return merge(a, parts, share);
}

// As a tree: a lane that waits for nothing else waits for each addition.
template <int kCount>
__device__ __forceinline__ float tree_sum(const float* values) {
  if constexpr (kCount == 1)
    return *values;
  else
    return tree_sum<kCount / 2>(values) + tree_sum<kCount / 2>(values + kCount / 2);
}

// kRows rows of kPer vectors a lane, the last of which some lanes may lack, by kTeam lanes of a warp, or one by a block
// whose warps take 32 * kPer vectors each. kRare: both pairs, or none. Rows of a team are of one
// image.
template <class T, int kTeam, int kPer, int kRows, bool kResidual, bool kRare>
__global__ void __launch_bounds__(kTeam == kWideTeam ? kWideThreads : kHeldThreads, kHeldBlocks<kTeam, kPer, kRows>)
    held_kernel(const __grid_constant__ HeldArguments<T> a) {
  constexpr bool kWide = kTeam == kWideTeam, kLoadEarly = kEarly<kPer, kRare>;
  constexpr int kLanes = kVectorLanes<T>, kStride = kWide ? 32 : kTeam;
  // Two streams in and two out gain by the hints, one in and one out loses (docs/experiments/layernorm).
  constexpr CacheHint kLoad = kResidual ? CacheHint::read_only_once : CacheHint::keep;
  constexpr CacheHint kStore = kResidual ? CacheHint::once : CacheHint::keep;
  const std::uint32_t begin = kWide ? threadIdx.x / 32 * (32 * kPer) : 0;
  const std::uint32_t lane = begin + threadIdx.x % kStride;  // its first vector
  const std::uint32_t row = kWide ? blockIdx.x : (blockIdx.x * (blockDim.x / kStride) + threadIdx.x / kStride) * kRows;
  const auto has = [&](int j) { return (!kWide && j + 1 < kPer) || lane + j * kStride < a.row_vectors; };
  const auto known = [&](int r) { return min(row + r, a.rows - 1); };  // teams of a warp shuffle together
  ptx::griddepcontrol_wait();
  std::uint64_t place[kRows];  // in bytes, of a row's first vector of this lane
#pragma unroll
  for (int r = 0; r < kRows; ++r) place[r] = (std::uint64_t{known(r)} * a.row_vectors + lane) * 16;
  const auto fetch = [&](const void* from, uint4(&bits)[kRows][kPer]) {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int j = 0; j < kPer; ++j)
        bits[r][j] = has(j) ? load_16_bytes<kLoad>(static_cast<const char*>(from) + place[r] + j * kStride * 16)
                            : make_uint4(0, 0, 0, 0);
  };
  uint4 x[kRows][kPer], residual[kRows][kPer];
  fetch(a.t.x, x);
  if constexpr (kResidual) fetch(a.t.residual, residual);
  // Late parameters come to L2 ahead of their first use. Lanes that hold x and a residual would spill for it.
  if (!kLoadEarly && (kWide || !kResidual) && blockIdx.x == 0) {
#pragma unroll 1
    for (int v = static_cast<int>(threadIdx.x); v < a.vectors; v += static_cast<int>(blockDim.x))
      each_parameter(a, [&](int which) { ptx::prefetch_l2(parameter(a, 0, v, which)); });
  }
  const auto image_place = [&](std::uint32_t vectors) {
    return (std::uint64_t{known(0) / a.rows_per_image} * vectors + lane) * 16;
  };
  const auto parameter_of = [&](const void* from, std::uint64_t at, int j) {
    uint4 bits;  // of lanes that have no vector are of no consequence
    if (has(j)) bits = load_16_bytes<CacheHint::read_only>(static_cast<const char*>(from) + at + j * kStride * 16);
    return bits;
  };
  uint4 factor[kPer], addend[kPer];
  if constexpr (kLoadEarly) {
    const std::uint64_t at = image_place(a.image_vectors);
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      factor[j] = parameter_of(a.pair.factor, at, j);
      addend[j] = parameter_of(a.pair.addend, at, j);
    }
  }
  ptx::griddepcontrol_launch_dependents();

  float s[kRows][kPer][kLanes], mean[kRows], squares[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    mean[r] = 0;
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      sum_vector<T>(x[r][j], residual[r][j], kResidual, s[r][j]);
      if (kResidual && row + r < a.rows && has(j))
        store_vector<T, kStore>(reinterpret_cast<T*>(static_cast<char*>(a.t.sum) + place[r] + j * kStride * 16),
                                s[r][j]);
      mean[r] += tree_sum<kLanes>(s[r][j]);  // 0 behind the row's end
    }
  }
  team_sums<kStride>(mean);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    mean[r] *= kWide ? part_inverse(a, begin, 32 * kPer) : a.length_inverse;
    squares[r] = 0;
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      float part = 0;
#pragma unroll
      for (float& value : s[r][j]) {
        value -= mean[r];
        part += value * value;
      }
      squares[r] += has(j) ? part : 0;
    }
  }
  team_sums<kStride>(squares);
  float shift[kRows], rstd[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    Moments moments{mean[r], rsqrtf(squares[r] * a.length_inverse + a.eps)};
    if constexpr (kWide) moments = merge_warps(a, {mean[r], squares[r]}, 32 * kPer);
    rstd[r] = moments.rstd;
    shift[r] = (mean[r] - moments.mean) * moments.rstd;
  }
#pragma unroll
  for (int j = 0; j < kPer; ++j) {
    const auto apply = [&](uint4 factor_bits, uint4 addend_bits, bool plus_one) {
      float f[kLanes], d[kLanes];
      unpack_vector<T>(factor_bits, f);
      unpack_vector<T>(addend_bits, d);
      if (plus_one) {
#pragma unroll
        for (float& value : f) value += 1.0f;
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int i = 0; i < kLanes; ++i) s[r][j][i] = s[r][j][i] * f[i] + d[i];
    };
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (float& value : s[r][j]) value = kWide ? value * rstd[r] + shift[r] : value * rstd[r];
    const auto late = [&](const void* from, std::uint32_t image_vectors) {
      return parameter_of(from, image_place(image_vectors), j);
    };
    if constexpr (kLoadEarly)
      apply(factor[j], addend[j], a.plus_one);
    else if (!kRare || a.t.gamma)
      apply(late(a.pair.factor, a.image_vectors), late(a.pair.addend, a.image_vectors), a.plus_one);
    if (kRare && a.t.scale) apply(late(a.t.scale, a.row_vectors), late(a.t.shift, a.row_vectors), true);
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      if (row + r < a.rows && has(j))
        store_vector<T, kStore>(reinterpret_cast<T*>(static_cast<char*>(a.t.y) + place[r] + j * kStride * 16), s[r][j]);
  }
}

// Threads of a block that owns a row of so many vectors.
template <int kPer>
std::uint32_t wide_threads(int vectors) {
  return (static_cast<std::uint32_t>(vectors) + 32 * kPer - 1) / (32 * kPer) * 32;
}

// Blocks of so many warps that there is one an SM, up to eight: they start one after the other, which for smaller ones
// takes longer than DRAM does.
template <class T, int kTeam, int kPer, int kRows = 1>
Status launch_held(const HeldArguments<T>& a, const LaunchContext& context) {
  LaunchShape shape{
      .grid = a.rows, .block = wide_threads<kPer>(a.vectors), .programmatic = context.programmatic_launch};
  if constexpr (kTeam != kWideTeam) {
    constexpr std::uint32_t kWarpRows = 32 / kTeam * kRows;
    const auto blocks_of = [&](std::uint32_t rows) { return (a.rows + rows - 1) / rows; };
    const std::uint32_t sms = static_cast<std::uint32_t>(context.device->sm_count);
    const std::uint32_t warps = std::min(kHeldThreads / 32u, blocks_of(kWarpRows * sms));
    shape.grid = blocks_of(kWarpRows * warps);
    shape.block = 32 * warps;
  }
  const auto launch = [&](auto kernel) {
    return launch_kernel("layernorm held_kernel", kernel, shape, context.stream, a);
  };
  if constexpr (kRows == 1) {
    if (!a.t.gamma == !a.t.scale)
      return launch(a.t.residual ? held_kernel<T, kTeam, kPer, 1, true, true>
                                 : held_kernel<T, kTeam, kPer, 1, false, true>);
  }
  return launch(a.t.residual ? held_kernel<T, kTeam, kPer, kRows, true, false>
                             : held_kernel<T, kTeam, kPer, kRows, false, false>);
}

// Whether blocks of two vectors a thread are all resident at once. Eight an SM at most: they start at about one a
// nanosecond, so that of more of them the start would be most of the time.
template <class T>
bool at_once(const Arguments<T>& a, std::uint32_t sms) {
  return a.rows <= std::min(8u, kWideThreads / wide_threads<2>(a.vectors)) * sms;
}

// Whether teams may take rows, that many at a time, by the same parameters.
template <class T>
bool shared_by(const HeldArguments<T>& a, std::uint32_t rows) {
  return a.plus_one ? a.rows_per_image.divisor() % rows == 0 : !a.t.scale && a.t.gamma;
}

}  // namespace

Status launch_tiled(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext& context) {
  return with_type(dtype, [&]<class T>(T) {
    const HeldArguments<T> a = held_arguments<T>(p, t);
    const std::uint32_t sms = static_cast<std::uint32_t>(context.device->sm_count);
    const bool few = a.rows <= 32 * sms;
    if (a.vectors <= 32) {
      if (few || !shared_by(a, 4)) return launch_held<T, 32, 1>(a, context);
      return with_team<4>(std::max(4, static_cast<int>(std::bit_ceil(a.row_vectors))),
                          [&](auto team) { return launch_held<T, team(), 1, 4>(a, context); });
    }
    if (a.vectors <= 32 * 2) {
      if (few || !shared_by(a, 2)) return launch_held<T, 32, 2>(a, context);
      return launch_held<T, 32, 2, 2>(a, context);
    }
    if (at_once(a, sms)) return launch_held<T, kWideTeam, 2>(a, context);
    if (a.vectors <= 32 * 3) return launch_held<T, 32, 3>(a, context);
    if (a.vectors <= 32 * 4) return launch_held<T, 32, 4>(a, context);
    if (a.vectors <= 32 * 5) return launch_held<T, 32, 5>(a, context);
    return launch_held<T, kWideTeam, 4>(a, context);
  });
}

}  // namespace noisefloor::layernorm
