// What the fast GPU variants of timestep_embedding share: the embedding in 16-byte vectors.
#pragma once

#include "kernels/device/activations.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/ptx/griddepcontrol.cuh"
#include "kernels/timestep_embedding/element.h"
#include "kernels/timestep_embedding/launchers.h"

namespace noisefloor::timestep_embedding {
namespace {

constexpr int kEmbedThreads = 128;

// A thread makes one vector of cosines and one of sines. half: a multiple of a vector's elements.
template <class T, bool kProgrammatic>
__global__ void __launch_bounds__(kEmbedThreads)
    embed_vectors_kernel(const Frequencies f, const float* t, T* out, int batch, int half, bool sin_first) {
  constexpr int kLanes = kVectorLanes<T>;
  if constexpr (kProgrammatic) {  // sm_90
    ptx::griddepcontrol_launch_dependents();
    ptx::griddepcontrol_wait();
  }
  const int i = static_cast<int>(blockIdx.x) * kEmbedThreads + static_cast<int>(threadIdx.x);
  const int image = i / (half / kLanes), k = i % (half / kLanes) * kLanes;
  if (image >= batch) return;
  float cosines[kLanes], sines[kLanes];
#pragma unroll 1
  for (int lane = 0; lane < kLanes; lane += 2) {
    cos_sin(f, t[image], k + lane, cosines[lane], sines[lane]);
    cos_sin(f, t[image], k + lane + 1, cosines[lane + 1], sines[lane + 1]);
  }
  T* const row = out + static_cast<std::int64_t>(image) * 2 * half + k;
  store_vector<T>(row + (sin_first ? half : 0), cosines);
  store_vector<T>(row + (sin_first ? 0 : half), sines);
}

template <class T, bool kProgrammatic>
Status launch_embedding(const Problem& p, const Tensors& t, T* out, const LaunchContext& context) {
  const auto threads = static_cast<unsigned>(p.batch * p.half() / kVectorLanes<T>);
  const LaunchShape shape{.grid = (threads + kEmbedThreads - 1) / kEmbedThreads,
                          .block = kEmbedThreads,
                          .programmatic = kProgrammatic && context.programmatic_launch};
  return launch_kernel("embed_vectors_kernel", embed_vectors_kernel<T, kProgrammatic>, shape, context.stream,
                       frequencies(p, t), t.t, out, static_cast<int>(p.batch), static_cast<int>(p.half()),
                       p.order == Order::sin_cos);
}

// The embedding and both layers, with numbers of Between in the workspace: embed(out) launches the one and returns its
// status, layer(w, b, in, out, inputs, activate) one of the others.
template <class T, class Between, class Embed, class Layer>
Status launch_perceptron(const Problem& p, const Tensors& t, const Scratch& scratch, const Embed& embed,
                         const Layer& layer) {
  auto* embedding = static_cast<Between*>(scratch.workspace);
  if (embedding == nullptr) return failure(StatusCode::invalid_argument, "timestep_embedding: no workspace");
  Between* hidden = embedding + p.batch * p.channels;
  if (const Status status = embed(embedding); !status.ok()) return status;
  layer(static_cast<const T*>(t.w1), static_cast<const T*>(t.b1), embedding, hidden, p.channels, true);
  if (const Status status = launch_status("timestep_embedding layer 1"); !status.ok()) return status;
  layer(static_cast<const T*>(t.w2), static_cast<const T*>(t.b2), hidden, static_cast<T*>(t.y), p.hidden, p.final_silu);
  return launch_status("timestep_embedding layer 2");
}

}  // namespace
}  // namespace noisefloor::timestep_embedding
