// timestep_embedding, tiled: a warp per output of a layer, which reads its row of weights 16 bytes a lane and meets
// eight images with it.
//
// Better than naive: accesses are coalesced and an eighth as many, and weights are read once for eight images. Without
// a perceptron it is naive's kernel.
//
// Tile: 4 warps of one output and 8 images. Shared memory: none; the layers before are in L1 and L2. Workspace: the
// embedding and the hidden layer in fp32. Three launches.
//
// Bound: bytes of the weights, 1.5 MB at channels=192, hidden=768; expected limiter: the latency of three launches.
//
// Requires: with a perceptron, half the channels, and hidden, multiples of 16 bytes.
// Numerics: angles in double, all else fp32, one rounding at the end.
// Source: original.
#include "kernels/timestep_embedding/device.cuh"

namespace noisefloor::timestep_embedding {
namespace {

constexpr int kThreads = 128;
constexpr int kImages = 8;

template <class T, class Out>
__global__ void __launch_bounds__(kThreads)
    layer_kernel(const T* w, const T* b, const float* in, Out* out, int batch, int inputs, int outputs, bool activate) {
  constexpr int kLanes = kVectorLanes<T>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int j = static_cast<int>(blockIdx.x * (kThreads / 32) + threadIdx.x / 32);
  if (j >= outputs) return;
  const int first = static_cast<int>(blockIdx.y) * kImages;
  float sums[kImages] = {};
  for (int k = lane * kLanes; k < inputs; k += 32 * kLanes) {
    float weights[kLanes];
    load_vector<T, CacheHint::read_only>(w + static_cast<std::int64_t>(j) * inputs + k, weights);
#pragma unroll
    for (int i = 0; i < kImages; ++i) {
      const float* const x = in + static_cast<std::int64_t>(min(first + i, batch - 1)) * inputs + k;
#pragma unroll
      for (int part = 0; part < kLanes; part += 4) {
        const float4 v = *reinterpret_cast<const float4*>(x + part);
        sums[i] += weights[part] * v.x + weights[part + 1] * v.y + weights[part + 2] * v.z + weights[part + 3] * v.w;
      }
    }
  }
#pragma unroll
  for (float& sum : sums)
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
  const float bias = to_float(b[j]);
#pragma unroll
  for (int i = 0; i < kImages; ++i) {
    if (lane != i || first + i >= batch) continue;
    const float value = sums[i] + bias;
    out[static_cast<std::int64_t>(first + i) * outputs + j] = from_float<Out>(activate ? silu<T>(value) : value);
  }
}

template <class T>
Status launch(const Problem& p, const Tensors& t, const Scratch& scratch, const LaunchContext& context) {
  if (!p.perceptron()) return launch_embedding<T, false>(p, t, static_cast<T*>(t.y), context);
  const auto outputs = static_cast<int>(p.hidden), batch = static_cast<int>(p.batch);
  const dim3 grid(static_cast<unsigned>((outputs + 3) / 4), static_cast<unsigned>((batch + kImages - 1) / kImages));
  const auto embed = [&](float* out) { return launch_embedding<float, false>(p, t, out, context); };
  return launch_perceptron<T, float>(p, t, scratch, embed,
                                     [&](auto* w, auto* b, auto* in, auto* out, auto inputs, bool activate) {
                                       layer_kernel<<<grid, kThreads, 0, context.stream>>>(
                                           w, b, in, out, batch, static_cast<int>(inputs), outputs, activate);
                                     });
}

}  // namespace

Status launch_tiled(const Problem& p, DType dtype, const Tensors& t, const Scratch& scratch,
                    const LaunchContext& context) {
  return with_type(dtype, [&]<class T>(T) { return launch<T>(p, t, scratch, context); });
}

}  // namespace noisefloor::timestep_embedding
