// sampler_step for sm_90a: blocks fed by the bulk copy engine. A producer thread copies every input's tile into a stage
// of shared memory; 256 consumer threads take 16 bytes of each and write their results straight to memory. A block
// takes consecutive tiles, fewer where the blocks would not fill the GPU. The grid is not persistent: SMs do not get
// equal shares of memory bandwidth, and blocks handed out as SMs come free even that out.
//
// Better than tiled: the loads in flight live in shared memory and do not depend on occupancy; a warp draws the noise
// of its next tile while that tile is copied; and a block lives for several tiles, so that its start is paid once for
// them.
//
// Requires: an image's length that is a multiple of 16 bytes (bulk copies, and vectors that do not cross images).
// Bound: memory traffic; expected limiter at batch=64, elements=1048576, solver=ddpm, noise=drawn in bf16: issue slots
// and DRAM together, else DRAM.
// Numerics: fp32, one rounding at the end; noise drawn in 16 bits within 1e-5 of the definition.
// Source: original; PTX ISA 9.0: "cp.async.bulk", "mbarrier", "griddepcontrol".
#include <algorithm>
#include <type_traits>

#include "kernels/device/launch.cuh"
#include "kernels/device/short_normals.cuh"
#include "kernels/ptx/bulk.cuh"
#include "kernels/ptx/elect.cuh"
#include "kernels/ptx/fence.cuh"
#include "kernels/ptx/griddepcontrol.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/ring.cuh"
#include "kernels/sampler_step/arguments.cuh"

namespace noisefloor::sampler_step {
namespace {

constexpr int kConsumers = 256;
constexpr int kThreads = kConsumers + 32;
constexpr int kBlocksPerSm = 3;
constexpr std::uint32_t kMaxTilesPerBlock = 8;
constexpr int kMaxInputs = 5;  // noise comes with ddpm and ddim, history with the others
constexpr std::uint32_t kTileVectors = kConsumers;
constexpr int kTileBytes = kConsumers * 16;
constexpr int kMinStages = 2;
constexpr int kMaxStages = 8;
constexpr int kStageBudget = 32 * 1024;
constexpr int kMostStageBytes = kMinStages * kMaxInputs * kTileBytes;
constexpr int kMaxSharedBytes = std::max(kStageBudget, kMostStageBytes);
static_assert(kBlocksPerSm * (kMaxSharedBytes + 1024) <= 228 * 1024);
static_assert(65536 / (kBlocksPerSm * kThreads) >= 72, "registers of a thread");

// The present inputs in a row, and where each of them lies in a stage (in tiles).
struct Pipeline {
  const void* source[kMaxInputs];
  int inputs = 0;
  int stages = 0;
  int cond = 0, noise = 0, history = 0, previous = 0;  // x is 0, model 1
  std::uint32_t vectors = 0;                           // of the batch
  std::uint32_t tiles = 0;
  std::uint32_t tiles_per_block = 0;
  Divider vectors_per_image;
};

// A block's tiles are consecutive.
__device__ __forceinline__ std::uint32_t first_tile(const Pipeline& p) {
  return blockIdx.x * p.tiles_per_block;
}
__device__ __forceinline__ std::uint32_t last_tile(const Pipeline& p) {
  return min(p.tiles, (blockIdx.x + 1) * p.tiles_per_block);
}

__device__ __forceinline__ void produce(const Pipeline& p, std::uint32_t base, std::uint32_t full,
                                        std::uint32_t empty) {
  const std::uint32_t stage_bytes = static_cast<std::uint32_t>(p.inputs) * kTileBytes;
  ptx::Ring ring;
  const std::uint32_t last = last_tile(p);
  for (std::uint32_t tile = first_tile(p); tile < last; ++tile, ring.advance(p.stages)) {
    const std::uint32_t first = tile * kTileVectors;
    const std::uint32_t bytes = min(kTileVectors, p.vectors - first) * 16;
    ptx::mbarrier_wait(empty + 8 * ring.stage, ring.parity ^ 1);  // free at first
    ptx::mbarrier_arrive_expect_tx(full + 8 * ring.stage, bytes * static_cast<std::uint32_t>(p.inputs));
#pragma unroll
    for (int input = 0; input < kMaxInputs; ++input) {
      if (input == p.inputs) break;
      ptx::bulk_load(base + ring.stage * stage_bytes + input * kTileBytes,
                     static_cast<const char*>(p.source[input]) + static_cast<std::int64_t>(first) * 16, bytes,
                     full + 8 * ring.stage);
    }
  }
}

__device__ __forceinline__ void draw(const NoiseStream& stream, const Divider& per_image, std::uint32_t vector,
                                     float (&noise)[kNormalsPerBlock]) {
  const std::uint32_t image = vector / per_image;
  const Normal4 normal = box_muller4(noise_words(stream, image, vector - image * per_image.divisor()));
#pragma unroll
  for (int i = 0; i < kNormalsPerBlock; ++i) noise[i] = normal.v[i];
}

// In 16 bits by fewer instructions (short_normals.cuh); what an image's words share is kept from tile to tile.
class ImageDraw {
 public:
  __device__ __forceinline__ ImageDraw(const NoiseStream& stream, const Divider& per_image, std::uint32_t vector)
      : image_(vector / per_image), noise_(stream, image_) {}

  // Of a vector of this image or of a later one, times `scale`.
  __device__ __forceinline__ NormalPairs draw(const NoiseStream& stream, const Divider& per_image, std::uint32_t vector,
                                              float scale) {
    const std::uint32_t image = vector / per_image;
    if (image != image_) {
      image_ = image;
      noise_ = ImageNoise(stream, image);
    }
    return short_normals(eight_words(stream, noise_, vector - image * per_image.divisor()), scale * kRootTwoLn2);
  }

 private:
  std::uint32_t image_;
  ImageNoise noise_;
};

// The noise of a vector between drawing and use; in 16 bits it has its coefficient already.
template <class T>
inline constexpr bool kShort = sizeof(T) == 2;
struct PlainNormals {
  float v[4];
};
template <class T>
using Drawn = std::conditional_t<kShort<T>, NormalPairs, PlainNormals>;

// One vector: `at` is its place in the stage's first tile.
template <class T, bool kDrawn>
__device__ __forceinline__ void update(const Arguments<T>& a, const Pipeline& p, const Coefficients& c,
                                       std::uint32_t at, std::uint32_t vector, const Drawn<T>& drawn) {
  constexpr int kLanes = kVectorLanes<T>;
  Lanes<kLanes> lanes;
  float term[kLanes];
  unpack_vector<T>(ptx::load_shared_16(at), lanes.x);
  unpack_vector<T>(ptx::load_shared_16(at + kTileBytes), term);
  lanes.predict(c, term);
  if (p.cond > 0) {
    unpack_vector<T>(ptx::load_shared_16(at + p.cond * kTileBytes), term);
    lanes.guide(c, term);
  }
  lanes.advance(c);
  if (!kDrawn && p.noise > 0) {
    unpack_vector<T>(ptx::load_shared_16(at + p.noise * kTileBytes), term);
    lanes.add(c.noise, term);
  }
  if (p.history > 0) {
    unpack_vector<T>(ptx::load_shared_16(at + p.history * kTileBytes), term);
    lanes.add(c.history, term);
  }
  if (p.previous > 0) {
    unpack_vector<T>(ptx::load_shared_16(at + p.previous * kTileBytes), term);
    lanes.add(c.previous, term);
  }
  if constexpr (kDrawn && kShort<T>)
    drawn.add_to(lanes.x_next);
  else if constexpr (kDrawn)
    lanes.add(c.noise, drawn.v);
  const std::int64_t i = static_cast<std::int64_t>(vector) * kLanes;
  store_vector<T, CacheHint::once>(a.x_next + i, lanes.x_next);
  if (!a.history_out) return;
  lanes.keep(c);
  store_vector<T, CacheHint::once>(a.history_out + i, lanes.x);
}

template <class T, bool kDrawn>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    ptx_kernel(const __grid_constant__ Arguments<T> a, const __grid_constant__ Pipeline p) {
  extern __shared__ __align__(128) unsigned char stages[];
  __shared__ std::uint64_t barriers[2 * kMaxStages];
  const std::uint32_t full = ptx::shared_address(barriers);
  const std::uint32_t empty = full + 8 * kMaxStages;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < p.stages; ++stage) {
      ptx::mbarrier_init(full + 8 * stage, 1);
      ptx::mbarrier_init(empty + 8 * stage, kConsumers);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();  // what the kernel before this one wrote

  if (threadIdx.x >= kConsumers) {
    if (threadIdx.x / 32 == kConsumers / 32 && ptx::elect_one()) produce(p, ptx::shared_address(stages), full, empty);
    return;
  }
  const Coefficients c = load_coefficients(a.row);
  const std::uint32_t stage_bytes = static_cast<std::uint32_t>(p.inputs) * kTileBytes;
  [[maybe_unused]] ImageDraw images(a.stream, p.vectors_per_image, first_tile(p) * kTileVectors + threadIdx.x);
  ptx::Ring ring;
  const std::uint32_t last = last_tile(p);
#pragma unroll 1
  for (std::uint32_t tile = first_tile(p); tile < last; ++tile, ring.advance(p.stages)) {
    const std::uint32_t vector = tile * kTileVectors + threadIdx.x;
    Drawn<T> noise;
    if constexpr (kDrawn && kShort<T>)
      noise = images.draw(a.stream, p.vectors_per_image, vector, c.noise);
    else if constexpr (kDrawn)
      draw(a.stream, p.vectors_per_image, vector, noise.v);
    ptx::mbarrier_wait(full + 8 * ring.stage, ring.parity);
    const std::uint32_t at = ptx::shared_address(stages) + ring.stage * stage_bytes + threadIdx.x * 16;
    if (vector < p.vectors) update<T, kDrawn>(a, p, c, at, vector, noise);
    ptx::mbarrier_arrive(empty + 8 * ring.stage);
  }
}

template <class T>
Pipeline make_pipeline(const Problem& problem, const Arguments<T>& a, int sm_count) {
  Pipeline p;
  const auto add = [&](const void* source) {
    if (source == nullptr) return 0;
    p.source[p.inputs] = source;
    return p.inputs++;
  };
  add(a.x);
  add(a.model);
  p.cond = add(a.model_cond);
  p.noise = add(a.noise);
  p.history = add(a.history);
  p.previous = add(a.previous);
  p.stages = std::clamp(kStageBudget / (p.inputs * kTileBytes), kMinStages, kMaxStages);
  const auto per_image = static_cast<std::uint32_t>(problem.elements / kVectorLanes<T>);
  p.vectors_per_image = Divider(per_image);
  p.vectors = per_image * static_cast<std::uint32_t>(problem.batch);
  p.tiles = (p.vectors + kTileVectors - 1) / kTileVectors;
  const auto resident = static_cast<std::uint32_t>(kBlocksPerSm * sm_count);
  p.tiles_per_block = std::min((p.tiles + resident - 1) / resident, kMaxTilesPerBlock);
  return p;
}

template <class T, bool kDrawn>
Status launch(const Arguments<T>& a, const Pipeline& p, const LaunchContext& context) {
  const LaunchShape shape{.grid = (p.tiles + p.tiles_per_block - 1) / p.tiles_per_block,
                          .block = kThreads,
                          .shared_bytes = static_cast<std::size_t>(p.stages * p.inputs * kTileBytes),
                          .shared_limit = kMaxSharedBytes,
                          .programmatic = context.programmatic_launch};
  return launch_kernel("sampler_step ptx_kernel", ptx_kernel<T, kDrawn>, shape, context.stream, a, p);
}

}  // namespace

Status launch_ptx_sm90a(const Problem& problem, DType dtype, const Tensors& tensors, const Scratch&,
                        const LaunchContext& context) {
  return with_type(dtype, [&]<class T>(T) {
    const Arguments<T> a = make_arguments<T>(problem, tensors);
    const Pipeline p = make_pipeline(problem, a, context.device->sm_count);
    return a.drawn ? launch<T, true>(a, p, context) : launch<T, false>(a, p, context);
  });
}

}  // namespace noisefloor::sampler_step
