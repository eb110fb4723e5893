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
#include "kernels/core/cuda_status.h"
#include "kernels/device/activations.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/timestep_embedding/element.h"
#include "kernels/timestep_embedding/launchers.h"

namespace noisefloor::timestep_embedding {
namespace {

constexpr int kThreads = 128;

unsigned blocks_for(std::int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);  // at most 65535 * 16384 / 128
}

template <class Out>
__global__ void __launch_bounds__(kThreads)
    embed_kernel(const Frequencies f, const float* t, Out* out, std::int64_t batch, std::int64_t half, bool sin_first) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= batch * half) return;
  const std::int64_t image = i / half, k = i % half;
  float cosine, sine;
  cos_sin(f, t[image], k, cosine, sine);
  Out* row = out + image * 2 * half;
  row[(sin_first ? half : 0) + k] = from_float<Out>(cosine);
  row[(sin_first ? 0 : half) + k] = from_float<Out>(sine);
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
  const Frequencies f = frequencies(p, t);
  const unsigned pairs = blocks_for(p.batch * p.half()), outputs = blocks_for(p.batch * p.hidden);
  const bool sin_first = p.order == Order::sin_cos;
  T* y = static_cast<T*>(t.y);
  if (!p.perceptron()) {
    embed_kernel<<<pairs, kThreads, 0, context.stream>>>(f, t.t, y, p.batch, p.half(), sin_first);
    return launch_status("timestep_embedding embed_kernel");
  }
  auto* embedding = static_cast<float*>(scratch.workspace);
  if (embedding == nullptr) return failure(StatusCode::invalid_argument, "timestep_embedding: no workspace");
  float* hidden = embedding + p.batch * p.channels;
  embed_kernel<<<pairs, kThreads, 0, context.stream>>>(f, t.t, embedding, p.batch, p.half(), sin_first);
  if (const Status status = launch_status("timestep_embedding embed_kernel"); !status.ok()) return status;
  layer_kernel<<<outputs, kThreads, 0, context.stream>>>(static_cast<const T*>(t.w1), static_cast<const T*>(t.b1),
                                                         embedding, hidden, p.batch, p.channels, p.hidden, true);
  if (const Status status = launch_status("timestep_embedding layer_kernel 1"); !status.ok()) return status;
  layer_kernel<<<outputs, kThreads, 0, context.stream>>>(static_cast<const T*>(t.w2), static_cast<const T*>(t.b2),
                                                         hidden, y, p.batch, p.hidden, p.hidden, p.final_silu);
  return launch_status("timestep_embedding layer_kernel 2");
}

}  // namespace

Status launch_naive(const Problem& p, DType dtype, const Tensors& t, const Scratch& scratch,
                    const LaunchContext& context) {
  return with_type(dtype, [&](auto zero) { return launch<decltype(zero)>(p, t, scratch, context); });
}

}  // namespace noisefloor::timestep_embedding
