// sampler_step, tiled: 16 bytes per thread and tensor.
//
// Better than naive: an eighth (fp32: a quarter) of the memory instructions, and every number of a Philox block is
// used.
//
// Tile: 256 threads x 16 bytes (2048 elements of 16 bits, or 1024) per block. Vectors never cross images, so that a
// vector of drawn noise has one image; where an image's length or offset is not a multiple of 16 bytes, its vectors are
// loaded by element. Shared memory: none. Registers: at most 64, four blocks per SM.
//
// Bound: memory traffic; limited by loads in flight (one vector per thread and tensor) and by blocks that load, compute
// and end.
//
// Requires: fewer than 2^31 vectors.
// Numerics: fp32, one rounding at the end.
// Source: original.
#include "kernels/device/launch.cuh"
#include "kernels/device/short_normals.cuh"
#include "kernels/sampler_step/arguments.cuh"

namespace noisefloor::sampler_step {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerSm = 4;  // 1024 threads: 64 registers each

struct Tiling {
  Divider vectors_per_image;
  std::uint32_t vectors = 0;  // of the batch
  bool wide_cond = false;     // whether the conditional half starts at a multiple of 16 bytes
};

template <class T>
__device__ __forceinline__ void load_lanes(const T* pointer, bool wide, int count, float (&out)[kVectorLanes<T>]) {
  if (wide) {
    load_vector<T, CacheHint::read_only_once>(pointer, out);
    return;
  }
#pragma unroll
  for (int i = 0; i < kVectorLanes<T>; ++i) out[i] = i < count ? to_float(pointer[i]) : 0.0f;
}

template <class T>
__device__ __forceinline__ void store_lanes(T* pointer, bool wide, int count, const float (&in)[kVectorLanes<T>]) {
  if (wide) {
    store_vector<T, CacheHint::once>(pointer, in);
    return;
  }
#pragma unroll
  for (int i = 0; i < kVectorLanes<T>; ++i)
    if (i < count) pointer[i] = from_float<T>(in[i]);
}

template <class T>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm) tiled_kernel(const Arguments<T> a, const Tiling tiling) {
  constexpr int kLanes = kVectorLanes<T>;
  const std::uint32_t vector = blockIdx.x * kThreads + threadIdx.x;
  if (vector >= tiling.vectors) return;
  const std::uint32_t image = vector / tiling.vectors_per_image;
  const std::uint32_t within = (vector - image * tiling.vectors_per_image.divisor()) * kLanes;
  const std::int64_t i = static_cast<std::int64_t>(image) * a.elements + within;
  const int count = min(kLanes, static_cast<int>(a.elements - within));
  const bool wide = count == kLanes && i % kLanes == 0;

  const Coefficients c = load_coefficients(a.row);
  Lanes<kLanes> lanes;
  float model[kLanes], cond[kLanes], history[kLanes], noise[kLanes], previous[kLanes];
  load_lanes(a.x + i, wide, count, lanes.x);
  load_lanes(a.model + i, wide, count, model);
  if (a.model_cond) load_lanes(a.model_cond + i, wide && tiling.wide_cond, count, cond);
  if (a.history) load_lanes(a.history + i, wide, count, history);
  if (a.noise) load_lanes(a.noise + i, wide, count, noise);
  if (a.previous) load_lanes(a.previous + i, wide, count, previous);
  if (a.drawn) draw_vector(a.stream, image, within / kLanes, noise);

  lanes.predict(c, model);
  if (a.model_cond) lanes.guide(c, cond);
  lanes.advance(c);
  if (a.history) lanes.add(c.history, history);
  if (a.noise || a.drawn) lanes.add(c.noise, noise);
  if (a.previous) lanes.add(c.previous, previous);
  store_lanes(a.x_next + i, wide, count, lanes.x_next);
  if (!a.history_out) return;
  lanes.keep(c);
  store_lanes(a.history_out + i, wide, count, lanes.x);
}

}  // namespace

Status launch_tiled(const Problem& problem, DType dtype, const Tensors& tensors, const Scratch&,
                    const LaunchContext& context) {
  return with_type(dtype, [&]<class T>(T) {
    constexpr int kLanes = kVectorLanes<T>;
    Tiling tiling;
    const auto per_image = static_cast<std::uint32_t>((problem.elements + kLanes - 1) / kLanes);
    tiling.vectors_per_image = Divider(per_image);
    tiling.vectors = per_image * static_cast<std::uint32_t>(problem.batch);  // at most 2^31, by check() and can_run
    tiling.wide_cond = problem.total() % kLanes == 0;
    const unsigned blocks = (tiling.vectors + kThreads - 1) / kThreads;
    return launch_kernel("sampler_step tiled_kernel", tiled_kernel<T>, {.grid = blocks, .block = kThreads},
                         context.stream, make_arguments<T>(problem, tensors), tiling);
  });
}

}  // namespace noisefloor::sampler_step
