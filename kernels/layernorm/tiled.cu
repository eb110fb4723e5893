// layernorm, tiled: a team of 4 to 32 lanes per row, or a block of up to 1024 threads, 16 bytes per lane and access.
//
// Better than naive: an eighth (fp32: a quarter) of the memory instructions, all loads of a row under way at once, x
// read once into registers, and reductions by shuffles: no barrier, so that the rows of an SM are out of phase. A block
// has one: its warps take the moments of their own parts, then merge them all.
//
// Tile: up to 256 threads of teams, of two vectors a lane up to 64 vectors (one where rows are few), of three to five
// beyond. Blocks: longer rows, four vectors a thread; few of more than 128 vectors, two. Parameters are loaded beside x
// where registers hold both, so that their latency is no second one. Registers: 48 to 80. Shared memory: 256 bytes.
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

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
inline constexpr int kMostHeldBlocks = 4;  // an SM of sm_75 holds 1024 threads
#else
inline constexpr int kMostHeldBlocks = 5;  // 48 registers
#endif
// Of kHeldThreads or kWideThreads each, resident on an SM, at least.
template <int kTeam, int kPer, bool kEarly>
inline constexpr int kHeldBlocks = kTeam == kWideTeam                    ? 1
                                   : kPer == 2                           ? kMostHeldBlocks
                                   : kPer + static_cast<int>(kEarly) > 4 ? 3
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

// A row of kPer vectors a lane, the last of which some lanes may lack, by kTeam lanes of a warp, or one by a block
// whose warps take 32 * kPer vectors each. kRare: both pairs, or none.
template <class T, int kTeam, int kPer, bool kEarly, bool kResidual, bool kRare>
__global__ void __launch_bounds__(kTeam == kWideTeam ? kWideThreads : kHeldThreads, kHeldBlocks<kTeam, kPer, kEarly>)
    held_kernel(const __grid_constant__ HeldArguments<T> a) {
  constexpr bool kWide = kTeam == kWideTeam, kLoadEarly = kEarly && !kRare;
  constexpr int kLanes = kVectorLanes<T>, kStride = kWide ? 32 : kTeam;
  // Two streams in and two out gain by the hints, one in and one out loses (docs/experiments/layernorm).
  constexpr CacheHint kLoad = kResidual ? CacheHint::read_only_once : CacheHint::keep;
  constexpr CacheHint kStore = kResidual ? CacheHint::once : CacheHint::keep;
  const std::uint32_t begin = kWide ? threadIdx.x / 32 * (32 * kPer) : 0;
  const std::uint32_t lane = begin + threadIdx.x % kStride;  // its first vector
  const std::uint32_t row = kWide ? blockIdx.x : blockIdx.x * (blockDim.x / kStride) + threadIdx.x / kStride;
  const auto has = [&](int j) { return (!kWide && j + 1 < kPer) || lane + j * kStride < a.row_vectors; };
  const std::uint32_t known = min(row, a.rows - 1);  // teams of a warp shuffle together
  ptx::griddepcontrol_wait();
  // In bytes, of this lane's first vector.
  const std::uint64_t place = (std::uint64_t{known} * a.row_vectors + lane) * 16;
  const auto fetch = [&](const void* from, uint4(&bits)[kPer]) {
#pragma unroll
    for (int j = 0; j < kPer; ++j)
      bits[j] = has(j) ? load_16_bytes<kLoad>(static_cast<const char*>(from) + place + j * kStride * 16)
                       : make_uint4(0, 0, 0, 0);
  };
  const auto store = [&](void* to, int j, const float(&values)[kLanes]) {
    if (row < a.rows && has(j))
      store_vector<T, kStore>(reinterpret_cast<T*>(static_cast<char*>(to) + place + j * kStride * 16), values);
  };
  uint4 x[kPer], residual[kPer];
  fetch(a.t.x, x);
  if constexpr (kResidual) fetch(a.t.residual, residual);
  // Late parameters come to L2 ahead of their first use. Lanes that hold x and a residual would spill for it.
  if (!kLoadEarly && (kWide || !kResidual) && blockIdx.x == 0) {
#pragma unroll 1
    for (int v = static_cast<int>(threadIdx.x); v < a.vectors; v += static_cast<int>(blockDim.x))
      each_parameter(a, [&](int which) { ptx::prefetch_l2(parameter(a, 0, v, which)); });
  }
  const auto image_place = [&](std::uint32_t vectors) {
    return (std::uint64_t{known / a.rows_per_image} * vectors + lane) * 16;
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

  float s[kPer][kLanes];
  float sum = 0;
#pragma unroll
  for (int j = 0; j < kPer; ++j) {
    sum_vector<T>(x[j], residual[j], kResidual, s[j]);
    if constexpr (kResidual) store(a.t.sum, j, s[j]);
    sum += tree_sum<kLanes>(s[j]);  // 0 behind the row's end
  }
  const float mean = lane_sum<kStride>(sum) * (kWide ? part_inverse(a, begin, 32 * kPer) : a.length_inverse);
  float squares = 0;
#pragma unroll
  for (int j = 0; j < kPer; ++j) {
    float part = 0;
#pragma unroll
    for (float& value : s[j]) {
      value -= mean;
      part += value * value;
    }
    squares += has(j) ? part : 0;
  }
  squares = lane_sum<kStride>(squares);
  Moments moments{mean, rsqrtf(squares * a.length_inverse + a.eps)};
  if constexpr (kWide) moments = merge_warps(a, {mean, squares}, 32 * kPer);
  const float shift = (mean - moments.mean) * moments.rstd;
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
      for (int i = 0; i < kLanes; ++i) s[j][i] = s[j][i] * f[i] + d[i];
    };
#pragma unroll
    for (float& value : s[j]) value = kWide ? value * moments.rstd + shift : value * moments.rstd;
    const auto late = [&](const void* from, std::uint32_t image_vectors) {
      return parameter_of(from, image_place(image_vectors), j);
    };
    if constexpr (kLoadEarly)
      apply(factor[j], addend[j], a.plus_one);
    else if (!kRare || a.t.gamma)
      apply(late(a.pair.factor, a.image_vectors), late(a.pair.addend, a.image_vectors), a.plus_one);
    if (kRare && a.t.scale) apply(late(a.t.scale, a.row_vectors), late(a.t.shift, a.row_vectors), true);
    store(a.t.y, j, s[j]);
  }
}

// Threads of a block that owns a row of so many vectors.
template <int kPer>
std::uint32_t wide_threads(int vectors) {
  return (static_cast<std::uint32_t>(vectors) + 32 * kPer - 1) / (32 * kPer) * 32;
}

// Blocks start one after the other, which for smaller ones than eight warps takes longer than DRAM does. Where an SM
// has at most 16 warps to run, four spread better; and no more than leave a block for each SM.
template <class T, int kTeam, int kPer, bool kEarly>
Status launch_held(const HeldArguments<T>& a, const LaunchContext& context) {
  LaunchShape shape{
      .grid = a.rows, .block = wide_threads<kPer>(a.vectors), .programmatic = context.programmatic_launch};
  if constexpr (kTeam != kWideTeam) {
    constexpr std::uint32_t kWarpRows = 32 / kTeam;
    const auto blocks_of = [&](std::uint32_t rows) { return (a.rows + rows - 1) / rows; };
    const std::uint32_t of_sm = blocks_of(kWarpRows * static_cast<std::uint32_t>(context.device->sm_count));  // warps
    const std::uint32_t warps = std::min(of_sm, of_sm <= 16 ? 4u : kHeldThreads / 32u);
    shape.grid = blocks_of(kWarpRows * warps);
    shape.block = 32 * warps;
  }
  const auto launch = [&](auto kernel) {
    return launch_kernel("layernorm held_kernel", kernel, shape, context.stream, a);
  };
  const bool rare = !a.t.gamma == !a.t.scale;
  if (a.t.residual)
    return launch(rare ? held_kernel<T, kTeam, kPer, kEarly, true, true>
                       : held_kernel<T, kTeam, kPer, kEarly, true, false>);
  return launch(rare ? held_kernel<T, kTeam, kPer, kEarly, false, true>
                     : held_kernel<T, kTeam, kPer, kEarly, false, false>);
}

// Whether blocks of two vectors a thread are all resident at once. Eight an SM at most: they start at about one a
// nanosecond, so that of more of them the start would be most of the time.
template <class T>
bool at_once(const Arguments<T>& a, std::uint32_t sms) {
  return a.rows <= std::min(8u, kWideThreads / wide_threads<2>(a.vectors)) * sms;
}

}  // namespace

Status launch_tiled(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext& context) {
  return with_type(dtype, [&]<class T>(T) {
    const HeldArguments<T> a = held_arguments<T>(p, t);
    const std::uint32_t sms = static_cast<std::uint32_t>(context.device->sm_count);
    const bool few = a.rows <= 16 * sms;
    if (a.vectors <= 4) return launch_held<T, 4, 1, true>(a, context);
    if (few && a.vectors <= 32) return launch_held<T, 32, 1, true>(a, context);
    if (a.vectors <= 32)  // two vectors a lane: fewer shuffles for as many bytes
      return with_team<3>(static_cast<int>(std::bit_ceil(a.row_vectors)) / 2,
                          [&](auto team) { return launch_held<T, team(), 2, true>(a, context); });
    // 320 channels of 16 bits leave 3 of 8 lanes of a warp idle, 1 of 6 here: the issue slots would be DRAM's time.
    if (!few && a.vectors <= 16 * 3) return launch_held<T, 16, 3, true>(a, context);
    if (a.vectors <= 32 * 2) return launch_held<T, 32, 2, true>(a, context);
    if (a.vectors <= 32 * 3) return launch_held<T, 32, 3, true>(a, context);
    // Of 80 registers, 24 rows are resident on an SM; of 64, for late parameters, 32.
    if (a.vectors <= 32 * 4)
      return a.rows > 24 * sms && a.rows <= 32 * sms ? launch_held<T, 32, 4, false>(a, context)
                                                     : launch_held<T, 32, 4, true>(a, context);
    if (at_once(a, sms)) return launch_held<T, kWideTeam, 2, true>(a, context);
    if (a.vectors <= 32 * 5) return launch_held<T, 32, 5, false>(a, context);
    return launch_held<T, kWideTeam, 4, false>(a, context);
  });
}

}  // namespace noisefloor::layernorm
