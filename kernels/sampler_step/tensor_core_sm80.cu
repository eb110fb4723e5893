// sampler_step, tensor cores: the linear form as a small matrix product, elements (rows) x inputs (k) x results
// (columns), in a loop over the batch, so that coefficients are split once per warp.
//
// What differs from tiled: x0 before its clamp and all of x_next but its x0 term come out of mma.sync m16n8k16.
//
// Requires: an image's length that is a multiple of 8.
// Bound: memory traffic, as every variant; each lane loads only 2 of the inputs, so that a thread has fewer bytes in
// flight than tiled's. README.md: why it does not win.
// Numerics: fp32 sums as the tensor core makes them (truncated alignment); inputs must be finite: infinity times a zero
// coefficient is NaN here. Drawn noise is added after the product, in fp32.
// Source: original; bf16 splitting after Henry, Tang and Heinecke, "Leveraging the bfloat16 Artificial Intelligence
// Datatype For Higher-Precision Computations" (2019).
#include <algorithm>
#include <type_traits>

#include "kernels/ptx/mma.cuh"
#include "kernels/sampler_step/arguments.cuh"

namespace noisefloor::sampler_step {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
template <class T>
constexpr int kBlocksPerSm = std::is_same_v<T, __nv_bfloat16> ? 3 : 2;  // the others are held as floats
constexpr int kChunk = 8;                                               // consecutive elements of a quad of lanes
constexpr int kQuads = 8;                                               // of a warp
constexpr int kGroups = 2;  // of kQuads chunks, per warp and step of its loop
constexpr std::uint32_t kWarpChunks = kGroups * kQuads;
constexpr int kPairs = kChunk / 2;  // two elements, in rows q and q + 8, per mma

// Two numbers as three pairs of bf16 whose sum is exact to 24 bits.
struct SplitPair {
  std::uint32_t high, middle, low;
};

__device__ __forceinline__ SplitPair split(float a, float b) {
  SplitPair s;
  float x, y;
  s.high = pack_pair<__nv_bfloat16>(a, b);
  unpack_pair<__nv_bfloat16>(s.high, x, y);
  a -= x;
  b -= y;
  s.middle = pack_pair<__nv_bfloat16>(a, b);
  unpack_pair<__nv_bfloat16>(s.middle, x, y);
  s.low = pack_pair<__nv_bfloat16>(a - x, b - y);
  return s;
}

// A chunk of one input.
template <class T>
struct Chunk {
  float v[kChunk];
  __device__ __forceinline__ void load(const T* pointer) {
#pragma unroll
    for (int i = 0; i < kChunk; i += kVectorLanes<T>)
      load_vector<T, CacheHint::read_only_once>(pointer + i, reinterpret_cast<float(&)[kVectorLanes<T>]>(v[i]));
  }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) v[i] = 0;
  }
};
template <>
struct Chunk<__nv_bfloat16> {
  uint4 v;
  __device__ __forceinline__ void load(const __nv_bfloat16* pointer) {
    v = load_16_bytes<CacheHint::read_only_once>(pointer);
  }
  __device__ __forceinline__ void clear() { v = make_uint4(0, 0, 0, 0); }
};

// Lane t of a quad holds inputs 2t and 2t + 1 of {x, model, model_cond, noise, history, previous_frame, -, -}, eight
// consecutive elements of each: what one 16-byte load brings, and no shuffle is needed. Every column pair computes the
// same two results, so that each lane of a quad finds those of all eight elements and finishes two of them: 2 of 8
// columns and at most 6 of 8 inputs are wanted.
//
// Exactness: coefficients are split into three bf16 terms (24 bits); bf16 inputs are exact as they are, fp32 and fp16
// inputs are split too, and products down to 2^-24 are summed in fp32: 2 (bf16) or 3 mma per 16 elements. k = 8 to 15
// holds the same inputs once more, for the next term of the split.

// Adds the products of pair `pair` of both inputs with the split coefficients b.
template <class T>
__device__ __forceinline__ void multiply(const Chunk<T>& first, const Chunk<T>& second, int pair, const SplitPair& b,
                                         float (&d)[4]) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const std::uint32_t words[2][4] = {{first.v.x, first.v.y, first.v.z, first.v.w},
                                       {second.v.x, second.v.y, second.v.z, second.v.w}};
    const std::uint32_t even = __byte_perm(words[0][pair], words[1][pair], 0x5410);
    const std::uint32_t odd = __byte_perm(words[0][pair], words[1][pair], 0x7632);
    ptx::mma_m16n8k16<__nv_bfloat16>(d, {even, odd, even, odd}, b.high, b.middle);
    ptx::mma_m16n8k16<__nv_bfloat16>(d, {even, odd, 0, 0}, b.low, 0);
  } else {
    const SplitPair even = split(first.v[2 * pair], second.v[2 * pair]);
    const SplitPair odd = split(first.v[2 * pair + 1], second.v[2 * pair + 1]);
    ptx::mma_m16n8k16<__nv_bfloat16>(d, {even.low, odd.low, even.middle, odd.middle}, b.high, b.middle);
    ptx::mma_m16n8k16<__nv_bfloat16>(d, {even.high, odd.high, even.middle, odd.middle}, b.low, b.high);
    ptx::mma_m16n8k16<__nv_bfloat16>(d, {even.high, odd.high, even.high, odd.high}, b.high, b.middle);
  }
}

// Coefficients of inputs 2t and 2t + 1 in column `column`: x0 in the even columns, the rest of x_next in the odd ones.
__device__ __forceinline__ SplitPair form_coefficients(const Coefficients& c, int t, int column) {
  const bool x0 = column % 2 == 0;
  if (t == 0) return x0 ? split(c.model_x, c.model) : split(c.x, 0);
  if (t == 1) return x0 ? split(c.model_cond, 0) : split(0, c.noise);
  if (t == 2) return x0 ? split(0, 0) : split(c.history, c.previous);
  return split(0, 0);
}

template <class T>
__device__ __forceinline__ void store_two(T* pointer, float first, float second) {
  if constexpr (sizeof(T) == 4)
    __stcs(reinterpret_cast<float2*>(pointer), make_float2(first, second));
  else
    __stcs(reinterpret_cast<unsigned*>(pointer), pack_pair<T>(first, second));
}

// Clamps, adds the x0 term and drawn noise, and stores elements 2t and 2t + 1 of `chunk`. own: x0 and the rest of
// x_next, for both; kept: history_x * x in [0] and [2].
template <class T>
__device__ __forceinline__ void finish(const Arguments<T>& a, const Coefficients& c, const Divider& chunks_per_image,
                                       std::uint32_t chunk, int t, const float (&own)[4], const float (&kept)[4]) {
  const float x0[2] = {clamp_symmetric(own[0], c.limit), clamp_symmetric(own[2], c.limit)};
  float x_next[2] = {own[1] + c.x0 * x0[0], own[3] + c.x0 * x0[1]};
  if (a.drawn) {
    const std::uint32_t image = chunk / chunks_per_image;
    const std::uint32_t block = (chunk - image * chunks_per_image.divisor()) * (kChunk / kNormalsPerBlock) + t / 2;
    const Philox4 words = noise_words(a.stream, image, block);
    float first, second;
    box_muller(t % 2 == 0 ? words.v[0] : words.v[2], t % 2 == 0 ? words.v[1] : words.v[3], first, second);
    x_next[0] += c.noise * first;
    x_next[1] += c.noise * second;
  }
  const std::int64_t i = static_cast<std::int64_t>(chunk) * kChunk + 2 * t;
  store_two(a.x_next + i, x_next[0], x_next[1]);
  if (a.history_out) store_two(a.history_out + i, kept[0] + c.history_x0 * x0[0], kept[2] + c.history_x0 * x0[1]);
}

template <class T>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm<T>)
    tensor_core_kernel(const Arguments<T> a, const Divider chunks_per_image, const std::uint32_t chunks) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int quad = lane / 4;
  const int t = lane % 4;
  const T* const sources[2] = {t == 0   ? a.x
                               : t == 1 ? a.model_cond
                               : t == 2 ? a.history
                                        : nullptr,
                               t == 0   ? a.model
                               : t == 1 ? a.noise
                               : t == 2 ? a.previous
                                        : nullptr};
  const Coefficients c = load_coefficients(a.row);
  const SplitPair form = form_coefficients(c, t, quad);
  const SplitPair slope = t == 0 && quad % 2 == 0 ? split(c.history_x, 0) : split(0, 0);

  for (std::uint32_t first = (blockIdx.x * kWarps + threadIdx.x / 32) * kWarpChunks; first < chunks;
       first += gridDim.x * kWarps * kWarpChunks) {  // every lane of a warp alike
    Chunk<T> inputs[kGroups][2];
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const std::uint32_t chunk = first + group * kQuads + quad;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        inputs[group][i].clear();
        if (sources[i] && chunk < chunks) inputs[group][i].load(sources[i] + static_cast<std::int64_t>(chunk) * kChunk);
      }
    }
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const std::uint32_t chunk = first + group * kQuads + quad;
      float own[4], kept[4] = {};
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        float d[4] = {};
        multiply(inputs[group][0], inputs[group][1], pair, form, d);
#pragma unroll
        for (int i = 0; i < 4; ++i) own[i] = t == pair ? d[i] : own[i];
        if (a.history_out) {
          float h[4] = {};
          multiply(inputs[group][0], inputs[group][1], pair, slope, h);
#pragma unroll
          for (int i = 0; i < 4; ++i) kept[i] = t == pair ? h[i] : kept[i];
        }
      }
      if (chunk < chunks) finish(a, c, chunks_per_image, chunk, t, own, kept);
    }
  }
}

}  // namespace

Status launch_tensor_core_sm80(const Problem& problem, DType dtype, const Tensors& tensors, const Scratch&,
                               const LaunchContext& context) {
  return with_type(dtype, [&]<class T>(T) {
    const auto per_image = static_cast<std::uint32_t>(problem.elements / kChunk);
    const std::uint32_t chunks = per_image * static_cast<std::uint32_t>(problem.batch);
    constexpr std::uint32_t kBlockChunks = kWarps * kWarpChunks;
    const std::uint32_t blocks = std::min((chunks + kBlockChunks - 1) / kBlockChunks,
                                          static_cast<std::uint32_t>(kBlocksPerSm<T> * context.device->sm_count));
    tensor_core_kernel<<<blocks, kThreads, 0, context.stream>>>(make_arguments<T>(problem, tensors), Divider(per_image),
                                                                chunks);
    return launch_status("sampler_step tensor_core_kernel");
  });
}

}  // namespace noisefloor::sampler_step
