// sampler_step for sm_90a: a persistent grid fed by the bulk copy engine.
//
// Better than tiled: the loads in flight live in shared memory instead of registers, so that their number does not
// depend on occupancy, and a warp draws the noise of its next tile while the copies of that tile are under way. Tile:
// 256 consumer threads x kVectors x 16 bytes of each tensor; one producer thread in a ninth warp copies every input's
// tile with cp.async.bulk into a stage and signals the stage's mbarrier; results go straight to memory, 16 bytes a
// thread. Shared memory: stages of (inputs x tile bytes) in kStageBudget = 96 KiB, twice per SM; 3 inputs of 4 KiB: 8
// stages. Registers: 288 threads twice per SM: at most 112. Bound: memory traffic. By Little's law 4.25 TB/s over 1 us
// of latency ask for 32 KiB in flight per SM; up to 192 KiB are. Drawn noise costs about 110 instructions and 12 of the
// MUFU pipe per 4 elements, half of the time that their traffic takes at 6 bytes an element; expected limiter there:
// issue slots beside DRAM. Requires: an image's length that is a multiple of 16 bytes (bulk copies, and vectors that do
// not cross images). Numerics: fp32, one rounding at the end. Source: original; PTX ISA 9.0: "cp.async.bulk",
// "mbarrier", "griddepcontrol".
#include <algorithm>

#include "kernels/ptx/fence.cuh"
#include "kernels/ptx/griddepcontrol.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/sampler_step/arguments.cuh"

namespace noisefloor::sampler_step {
namespace {

constexpr int kConsumers = 256;
constexpr int kThreads = kConsumers + 32;
constexpr int kVectors = 1;
constexpr int kBlocksPerSm = 2;
constexpr int kStageBudget = 96 * 1024;
constexpr int kMaxStages = 8;
constexpr int kMaxInputs = 6;
constexpr std::uint32_t kTileVectors = kConsumers * kVectors;
constexpr std::uint32_t kTileBytes = kTileVectors * 16;

// The present inputs in a row, and where each of them lies in a stage (in tiles).
struct Pipeline {
  const void* source[kMaxInputs];
  int inputs = 0;
  int stages = 0;
  int cond = 0, noise = 0, history = 0, previous = 0;  // x is 0, model 1
  std::uint32_t vectors = 0;                           // of the batch
  std::uint32_t tiles = 0;
  Divider vectors_per_image;
};

// cp.async.bulk, global to shared memory, its bytes counted by `barrier`; `policy` is an L2 cache policy. All but the
// barrier multiples of 16 bytes.
__device__ __forceinline__ void bulk_load(std::uint32_t to, const void* from, std::uint32_t bytes,
                                          std::uint32_t barrier, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(to),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}
// evict_first: every byte is read once.
__device__ __forceinline__ std::uint64_t streaming_policy() {
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ uint4 load_shared(std::uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(address));
  return v;
}

struct Ring {  // position in the stages, and the parity of the current round
  int stage = 0;
  std::uint32_t parity = 0;
  __device__ __forceinline__ void advance(int stages) {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

__device__ __forceinline__ void produce(const Pipeline& p, std::uint32_t base, std::uint32_t full,
                                        std::uint32_t empty) {
  const std::uint64_t policy = streaming_policy();
  const std::uint32_t stage_bytes = static_cast<std::uint32_t>(p.inputs) * kTileBytes;
  Ring ring;
  for (std::uint32_t tile = blockIdx.x; tile < p.tiles; tile += gridDim.x, ring.advance(p.stages)) {
    const std::uint32_t first = tile * kTileVectors;
    const std::uint32_t bytes = min(kTileVectors, p.vectors - first) * 16;
    ptx::mbarrier_wait(empty + 8 * ring.stage, ring.parity ^ 1);  // free at first
    ptx::mbarrier_arrive_expect_tx(full + 8 * ring.stage, bytes * static_cast<std::uint32_t>(p.inputs));
#pragma unroll
    for (int input = 0; input < kMaxInputs; ++input) {
      if (input == p.inputs) break;
      bulk_load(base + ring.stage * stage_bytes + input * kTileBytes,
                static_cast<const char*>(p.source[input]) + static_cast<std::int64_t>(first) * 16, bytes,
                full + 8 * ring.stage, policy);
    }
  }
}

template <int kLanes>
__device__ __forceinline__ void draw(const NoiseStream& stream, const Divider& per_image, std::uint32_t vector,
                                     float (&noise)[kLanes]) {
  const std::uint32_t image = per_image.quotient(vector);
  const std::uint32_t first = (vector - image * per_image.divisor) * (kLanes / kNormalsPerBlock);
#pragma unroll
  for (int block = 0; block < kLanes / kNormalsPerBlock; ++block) {
    const Normal4 normal = box_muller4(noise_words(stream, image, first + block));
#pragma unroll
    for (int i = 0; i < kNormalsPerBlock; ++i) noise[block * kNormalsPerBlock + i] = normal.v[i];
  }
}

// One vector: `at` is its place in the stage's first tile.
template <class T, bool kDrawn>
__device__ __forceinline__ void update(const Arguments<T>& a, const Pipeline& p, const Coefficients& c,
                                       std::uint32_t at, std::uint32_t vector, const float (&drawn)[kVectorLanes<T>]) {
  constexpr int kLanes = kVectorLanes<T>;
  Lanes<kLanes> lanes;
  float term[kLanes];
  unpack_vector<T>(load_shared(at), lanes.x);
  unpack_vector<T>(load_shared(at + kTileBytes), term);
  lanes.predict(c, term);
  if (p.cond > 0) {
    unpack_vector<T>(load_shared(at + p.cond * kTileBytes), term);
    lanes.guide(c, term);
  }
  lanes.advance(c);
  if (!kDrawn && p.noise > 0) {
    unpack_vector<T>(load_shared(at + p.noise * kTileBytes), term);
    lanes.add(c.noise, term);
  }
  if (p.history > 0) {
    unpack_vector<T>(load_shared(at + p.history * kTileBytes), term);
    lanes.add(c.history, term);
  }
  if (p.previous > 0) {
    unpack_vector<T>(load_shared(at + p.previous * kTileBytes), term);
    lanes.add(c.previous, term);
  }
  if constexpr (kDrawn) lanes.add(c.noise, drawn);
  const std::int64_t i = static_cast<std::int64_t>(vector) * kLanes;
  store_vector<T, CacheHint::once>(a.x_next + i, lanes.x_next);
  if (!a.history_out) return;
  lanes.keep(c);
  store_vector<T, CacheHint::once>(a.history_out + i, lanes.x);
}

template <class T, bool kDrawn>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    ptx_kernel(const __grid_constant__ Arguments<T> a, const __grid_constant__ Pipeline p) {
  constexpr int kLanes = kVectorLanes<T>;
  extern __shared__ __align__(128) unsigned char stages[];
  __shared__ std::uint64_t barriers[2 * kMaxStages];
  const std::uint32_t full = ptx::shared_address(barriers);
  const std::uint32_t empty = full + 8 * kMaxStages;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < p.stages; ++stage) {
      ptx::mbarrier_init(full + 8 * stage, 1);
      ptx::mbarrier_init(empty + 8 * stage, kConsumers / 32);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();  // what the kernel before this one wrote

  if (threadIdx.x >= kConsumers) {
    if (threadIdx.x == kConsumers) produce(p, ptx::shared_address(stages), full, empty);
    return;
  }
  const Coefficients c = load_coefficients(a.row);
  const std::uint32_t stage_bytes = static_cast<std::uint32_t>(p.inputs) * kTileBytes;
  Ring ring;
  for (std::uint32_t tile = blockIdx.x; tile < p.tiles; tile += gridDim.x, ring.advance(p.stages)) {
    const std::uint32_t first = tile * kTileVectors + threadIdx.x;
    float noise[kVectors][kLanes];
    if constexpr (kDrawn) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) draw(a.stream, p.vectors_per_image, first + v * kConsumers, noise[v]);
    }
    ptx::mbarrier_wait(full + 8 * ring.stage, ring.parity);
    const std::uint32_t at = ptx::shared_address(stages) + ring.stage * stage_bytes + threadIdx.x * 16;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const std::uint32_t vector = first + v * kConsumers;
      if (vector < p.vectors) update<T, kDrawn>(a, p, c, at + v * kConsumers * 16, vector, noise[v]);
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(empty + 8 * ring.stage);
  }
}

template <class T>
Pipeline make_pipeline(const Problem& problem, const Arguments<T>& a) {
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
  p.stages = std::min(kMaxStages, kStageBudget / (p.inputs * static_cast<int>(kTileBytes)));
  const auto per_image = static_cast<std::uint32_t>(problem.elements / kVectorLanes<T>);
  p.vectors_per_image = Divider(per_image);
  p.vectors = per_image * static_cast<std::uint32_t>(problem.batch);
  p.tiles = (p.vectors + kTileVectors - 1) / kTileVectors;
  return p;
}

template <class T, bool kDrawn>
Status launch(const Arguments<T>& a, const Pipeline& p, const LaunchContext& context) {
  const int shared_bytes = p.stages * p.inputs * static_cast<int>(kTileBytes);
  NOISEFLOOR_CUDA(
      cudaFuncSetAttribute(ptx_kernel<T, kDrawn>, cudaFuncAttributeMaxDynamicSharedMemorySize, kStageBudget));
  cudaLaunchAttribute programmatic{};
  programmatic.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  programmatic.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = std::min(p.tiles, static_cast<std::uint32_t>(kBlocksPerSm * context.device->sm_count));
  config.blockDim = kThreads;
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = context.stream;
  config.attrs = &programmatic;
  config.numAttrs = context.programmatic_launch ? 1 : 0;
  NOISEFLOOR_CUDA(cudaLaunchKernelEx(&config, ptx_kernel<T, kDrawn>, a, p));
  return success();
}

}  // namespace

Status launch_ptx_sm90a(const Problem& problem, DType dtype, const Tensors& tensors, const Scratch&,
                        const LaunchContext& context) {
  return with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    const Arguments<T> a = make_arguments<T>(problem, tensors);
    const Pipeline p = make_pipeline(problem, a);
    return a.drawn ? launch<T, true>(a, p, context) : launch<T, false>(a, p, context);
  });
}

}  // namespace noisefloor::sampler_step
