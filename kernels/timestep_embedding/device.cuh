// What the GPU variants of timestep_embedding share: the kernel of the embedding, and the order of launches.
#pragma once

#include "kernels/device/activations.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/ptx/griddepcontrol.cuh"
#include "kernels/timestep_embedding/element.h"
#include "kernels/timestep_embedding/timestep_embedding.h"

namespace noisefloor::timestep_embedding {
namespace {

constexpr int kEmbedThreads = 128;

// A thread makes one cosine and one sine: an angle in double takes longer than its two stores.
template <class Out, bool kProgrammatic>
__global__ void __launch_bounds__(kEmbedThreads)
    embed_kernel(const Frequencies f, const float* t, Out* out, int batch, int half, bool sin_first) {
  const int i = static_cast<int>(blockIdx.x) * kEmbedThreads + static_cast<int>(threadIdx.x);
  const int image = i / half, k = i % half;
  double turns = 0;
  if constexpr (kProgrammatic) {  // sm_90; a frequency that reads nothing is made while the kernel before still runs
    ptx::griddepcontrol_launch_dependents();
    if (f.freqs == nullptr) turns = turns_of(f, k);
    ptx::griddepcontrol_wait();
  }
  if (image >= batch) return;
  if (!kProgrammatic || f.freqs != nullptr) turns = turns_of(f, k);
  float cosine, sine;
  cos_sin(turns, t[image], cosine, sine);
  Out* const row = out + static_cast<std::int64_t>(image) * 2 * half;
  row[(sin_first ? half : 0) + k] = from_float<Out>(cosine);
  row[(sin_first ? 0 : half) + k] = from_float<Out>(sine);
}

template <class Out, bool kProgrammatic>
Status launch_embedding(const Problem& p, const Tensors& t, Out* out, const LaunchContext& context) {
  const auto pairs = static_cast<unsigned>(p.batch * p.half());  // below 65536 * 8192
  const LaunchShape shape{.grid = (pairs + kEmbedThreads - 1) / kEmbedThreads,
                          .block = kEmbedThreads,
                          .programmatic = kProgrammatic && context.programmatic_launch};
  return launch_kernel("timestep_embedding embed_kernel", embed_kernel<Out, kProgrammatic>, shape, context.stream,
                       frequencies(p, t), t.t, out, static_cast<int>(p.batch), static_cast<int>(p.half()),
                       p.order == Order::sin_cos);
}

// The embedding and both layers, with numbers of Between in the workspace: embed(out) launches the one and returns its
// status, layer(w, b, in, out, inputs, activate) one of the others.
template <class T, class Between, class Embed, class Layer>
Status launch_perceptron(const Problem& p, const Tensors& t, const Scratch& scratch, const Embed& embed,
                         const Layer& layer) {
  auto* embedding = static_cast<Between*>(scratch.workspace);
  Between* hidden = embedding + p.batch * p.channels;
  if (const Status status = embed(embedding); !status.ok()) return status;
  layer(static_cast<const T*>(t.w1), static_cast<const T*>(t.b1), embedding, hidden, p.channels, true);
  if (const Status status = launch_status("timestep_embedding layer 1"); !status.ok()) return status;
  layer(static_cast<const T*>(t.w2), static_cast<const T*>(t.b2), hidden, static_cast<T*>(t.y), p.hidden, p.final_silu);
  return launch_status("timestep_embedding layer 2");
}

}  // namespace
}  // namespace noisefloor::timestep_embedding
