// sampler_step for sm_90a: blocks fed by the bulk copy engine (kernels/device/bulk_pipeline.cuh). A tile is 256 vectors
// of each input, of which a consumer thread takes one, and writes its results straight to memory.
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
#include "kernels/device/bulk_pipeline.cuh"
#include "kernels/device/short_normals.cuh"
#include "kernels/sampler_step/arguments.cuh"

namespace noisefloor::sampler_step {
namespace {

template <class T, bool kDrawn>
struct StepWork {
  static constexpr int kMaxInputs = 5;  // noise comes with ddpm and ddim, history with the others
  static constexpr int kLanes = kVectorLanes<T>;
  static constexpr std::uint32_t kTileVectors = kBulkConsumers, kTileBytes = kTileVectors * 16;
  static constexpr std::uint32_t kStageBudget = 32 * 1024;
  static constexpr bool kShort = kDrawn && sizeof(T) == 2;  // drawn by fewer instructions (short_normals.cuh)

  Arguments<T> a;
  const void* source[kMaxInputs];  // the inputs that there are
  std::uint32_t inputs = 0;
  std::uint32_t cond, noise, history, previous;  // where each lies in a stage, in tiles; x is 0, model 1
  Divider vectors_per_image;
  std::uint32_t vectors, tiles, stage_bytes;

  StepWork(const Problem& problem, const Arguments<T>& arguments) : a(arguments) {
    const auto add = [&](const void* tensor) {
      if (tensor == nullptr) return 0u;
      source[inputs] = tensor;
      return inputs++;
    };
    add(a.x);
    add(a.model);
    cond = add(a.model_cond);
    noise = add(a.noise);
    history = add(a.history);
    previous = add(a.previous);
    const auto per_image = static_cast<std::uint32_t>(problem.elements / kLanes);
    vectors_per_image = Divider(static_cast<int>(per_image));
    vectors = per_image * static_cast<std::uint32_t>(problem.batch);
    tiles = (vectors + kTileVectors - 1) / kTileVectors;
    stage_bytes = inputs * kTileBytes;
  }

  __device__ __forceinline__ void fetch(std::uint32_t tile, std::uint32_t stage, std::uint32_t barrier) const {
    const std::uint32_t first = tile * kTileVectors, bytes = min(kTileVectors, vectors - first) * 16;
    ptx::mbarrier_arrive_expect_tx(barrier, bytes * inputs);
#pragma unroll
    for (std::uint32_t input = 0; input < kMaxInputs; ++input) {
      if (input == inputs) break;
      ptx::bulk_load(stage + input * kTileBytes,
                     static_cast<const char*>(source[input]) + static_cast<std::int64_t>(first) * 16, bytes, barrier);
    }
  }

  // What a thread keeps from tile to tile: what the words of an image share, too, where they are drawn in 16 bits.
  struct Thread {
    Coefficients c;
    std::uint32_t image;
    ImageNoise words;
  };
  __device__ __forceinline__ Thread begin(std::uint32_t first_tile) const {
    const std::uint32_t image = (first_tile * kTileVectors + threadIdx.x) / vectors_per_image;
    return {load_coefficients(a.row), image, ImageNoise(a.stream, image)};
  }

  template <class Wait>
  __device__ __forceinline__ void consume(std::uint32_t tile, const Wait& wait, Thread& thread) const {
    const Coefficients& c = thread.c;
    const std::uint32_t vector = tile * kTileVectors + threadIdx.x;
    const std::uint32_t image = vector / vectors_per_image, within = vector - image * vectors_per_image.divisor();
    [[maybe_unused]] NormalPairs pairs;  // with their coefficient already
    [[maybe_unused]] float drawn[kLanes];
    if constexpr (kShort) {
      if (image != thread.image) {
        thread.image = image;
        thread.words = ImageNoise(a.stream, image);
      }
      pairs = short_normals(eight_words(a.stream, thread.words, within), c.noise * kRootTwoLn2);
    } else if constexpr (kDrawn) {
      draw_vector(a.stream, image, within, drawn);
    }
    const std::uint32_t at = wait() + threadIdx.x * 16;
    if (vector >= vectors) return;

    Lanes<kLanes> lanes;
    float term[kLanes];
    unpack_vector<T>(ptx::load_shared_16(at), lanes.x);
    unpack_vector<T>(ptx::load_shared_16(at + kTileBytes), term);
    lanes.predict(c, term);
    if (cond > 0) {
      unpack_vector<T>(ptx::load_shared_16(at + cond * kTileBytes), term);
      lanes.guide(c, term);
    }
    lanes.advance(c);
    if (!kDrawn && noise > 0) {
      unpack_vector<T>(ptx::load_shared_16(at + noise * kTileBytes), term);
      lanes.add(c.noise, term);
    }
    if (history > 0) {
      unpack_vector<T>(ptx::load_shared_16(at + history * kTileBytes), term);
      lanes.add(c.history, term);
    }
    if (previous > 0) {
      unpack_vector<T>(ptx::load_shared_16(at + previous * kTileBytes), term);
      lanes.add(c.previous, term);
    }
    if constexpr (kShort)
      pairs.add_to(lanes.x_next);
    else if constexpr (kDrawn)
      lanes.add(c.noise, drawn);
    const std::int64_t i = static_cast<std::int64_t>(vector) * kLanes;
    store_vector<T, CacheHint::once>(a.x_next + i, lanes.x_next);
    if (!a.history_out) return;
    lanes.keep(c);
    store_vector<T, CacheHint::once>(a.history_out + i, lanes.x);
  }
};

}  // namespace

Status launch_ptx_sm90a(const Problem& problem, DType dtype, const Tensors& tensors, const Scratch&,
                        const LaunchContext& context) {
  return with_type(dtype, [&]<class T>(T) {
    const Arguments<T> a = make_arguments<T>(problem, tensors);
    return a.drawn ? launch_bulk(StepWork<T, true>(problem, a), context)
                   : launch_bulk(StepWork<T, false>(problem, a), context);
  });
}

}  // namespace noisefloor::sampler_step
