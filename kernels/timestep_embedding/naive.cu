// timestep_embedding, naive: one thread per pair of the embedding, then one per output of each layer, which reads its
// row of weights from end to end. Three launches with a perceptron.
//
// Threads: 128. Workspace: the embedding and the hidden layer in fp32.
//
// Bound: latency of one load after the other; neighbouring threads read neighbouring rows, so that every access of a
// warp lies in 32 sectors.
//
// Requires: nothing.
// Numerics: angles in double, all else fp32, one rounding at the end.
// Source: original.
#include "kernels/timestep_embedding/device.cuh"

namespace noisefloor::timestep_embedding {
namespace {

constexpr int kThreads = 128;

unsigned blocks_for(std::int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);  // at most 65535 * 16384 / 128
}

template <class T, class Out>
__global__ void __launch_bounds__(kThreads)
    layer_kernel(const T* w, const T* b, const float* in, Out* out, std::int64_t batch, std::int64_t inputs,
                 std::int64_t outputs, bool activate) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= batch * outputs) return;
  const std::int64_t image = i / outputs, j = i % outputs;
  float sum = to_float(b[j]);
  for (std::int64_t k = 0; k < inputs; ++k) sum += to_float(w[j * inputs + k]) * in[image * inputs + k];
  out[i] = from_float<Out>(activate ? silu<T>(sum) : sum);
}

template <class T>
Status launch(const Problem& p, const Tensors& t, const Scratch& scratch, const LaunchContext& context) {
  const unsigned outputs = blocks_for(p.batch * p.hidden);
  const auto embed = [&]<class Out>(Out* out) { return launch_embedding<Out, false>(p, t, out, context); };
  if (!p.perceptron()) return embed(static_cast<T*>(t.y));
  return launch_perceptron<T, float>(
      p, t, scratch, embed, [&](auto* w, auto* b, auto* in, auto* out, auto inputs, bool activate) {
        layer_kernel<<<outputs, kThreads, 0, context.stream>>>(w, b, in, out, p.batch, inputs, p.hidden, activate);
      });
}

}  // namespace

Status launch_naive(const Problem& p, DType dtype, const Tensors& t, const Scratch& scratch,
                    const LaunchContext& context) {
  return with_type(dtype, [&]<class T>(T) { return launch<T>(p, t, scratch, context); });
}

}  // namespace noisefloor::timestep_embedding
