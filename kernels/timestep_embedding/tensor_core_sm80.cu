// timestep_embedding, tensor cores: each layer as a product [16 outputs x k] [k x 8 images] by mma.sync m16n8k16.
// Weights are A, row-major; the layer before is B. Four warps split k; their sums meet in shared memory. Three
// launches, with the embedding and the hidden layer in the workspace.
//
// Better than tiled: 16 outputs and 8 images take 2 mma per 32 inputs where tiled takes 4096 multiply-adds of a warp's
// lanes, 128 instructions; it wins where images are many.
//
// Requires: a perceptron (without one there is no product); bf16 or fp16; channels a multiple of 16, hidden of 8.
// Bound: as tiled: the latency of three launches.
// Numerics: the embedding and the hidden layer are rounded to the row's dtype; exact products, fp32 sums.
// Source: original; the fragment layouts are the PTX ISA's, "Matrix Fragments for mma.m16n8k16".
#include "kernels/ptx/mma.cuh"
#include "kernels/timestep_embedding/device.cuh"

namespace noisefloor::timestep_embedding {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kOutputs = 16, kImages = 8;

// A lane loads 16 bytes of rows g and g + 8 and of image g at the same eight inputs: the order of k within a product
// does not matter as long as A and B agree, so nothing is shuffled.
template <class T>
__global__ void __launch_bounds__(kThreads)
    layer_kernel(const T* w, const T* b, const T* in, T* out, int batch, int inputs, int outputs, bool activate) {
  __shared__ float sums[kWarps][kOutputs * kImages];
  static_assert(sizeof(sums) == 2 * 1024);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4, t = lane % 4;
  const int first_output = static_cast<int>(blockIdx.x) * kOutputs,
            first_image = static_cast<int>(blockIdx.y) * kImages;
  const auto row = [&](const T* base, int index, int count) {
    return base + static_cast<std::int64_t>(min(index, count - 1)) * inputs;
  };
  const T *const low = row(w, first_output + g, outputs), *const high = row(w, first_output + g + 8, outputs);
  const T* const x = row(in, first_image + g, batch);
  float d[4] = {};
  for (int base = warp * 32; base < inputs; base += kWarps * 32) {  // every lane alike
    const int k = base + t * 8;
    uint4 p{}, q{}, v{};
    if (k < inputs) {
      p = load_16_bytes<CacheHint::read_only>(low + k);
      q = load_16_bytes<CacheHint::read_only>(high + k);
      v = load_16_bytes(x + k);
    }
    ptx::mma_m16n8k16<T>(d, {p.x, q.x, p.y, q.y}, v.x, v.y);
    ptx::mma_m16n8k16<T>(d, {p.z, q.z, p.w, q.w}, v.z, v.w);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[warp][(g + 8 * (i / 2)) * kImages + 2 * t + i % 2] = d[i];
  __syncthreads();
  const int output = first_output + static_cast<int>(threadIdx.x) % kOutputs;
  const int image = first_image + static_cast<int>(threadIdx.x) / kOutputs;
  if (output >= outputs || image >= batch) return;
  float value = to_float(b[output]);
#pragma unroll
  for (int i = 0; i < kWarps; ++i) value += sums[i][(output - first_output) * kImages + image - first_image];
  out[static_cast<std::int64_t>(image) * outputs + output] = from_float<T>(activate ? silu<T>(value) : value);
}
static_assert(kThreads == kOutputs * kImages, "a thread finishes one sum");

template <class T>
Status launch(const Problem& p, const Tensors& t, const Scratch& scratch, const LaunchContext& context) {
  const auto outputs = static_cast<int>(p.hidden), batch = static_cast<int>(p.batch);
  const dim3 grid(static_cast<unsigned>((outputs + kOutputs - 1) / kOutputs),
                  static_cast<unsigned>((batch + kImages - 1) / kImages));
  const auto embed = [&](T* out) { return launch_embedding<T, false>(p, t, out, context); };
  return launch_perceptron<T, T>(
      p, t, scratch, embed, [&](auto* w, auto* b, auto* in, auto* out, auto inputs, bool activate) {
        layer_kernel<T>
            <<<grid, kThreads, 0, context.stream>>>(w, b, in, out, batch, static_cast<int>(inputs), outputs, activate);
      });
}

}  // namespace

Status launch_tensor_core_sm80(const Problem& p, DType dtype, const Tensors& t, const Scratch& scratch,
                               const LaunchContext& context) {
  return with_half_type(dtype, [&]<class T>(T) { return launch<T>(p, t, scratch, context); });
}

}  // namespace noisefloor::timestep_embedding
