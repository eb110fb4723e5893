// timestep_embedding for sm_90a: two launches instead of three, the second under way before the first has ended.
//
// Better than tensor_core: each block of the first layer makes the embedding itself while the copy engine brings its
// weights; those of the second start by programmatic dependent launch, which all kernels here honour, and wait for the
// hidden layer with their weights on chip. Without a perceptron: naive's kernel, its frequency made before the wait.
//
// Tile: 8 warps of one output and 8 images each; 8 rows of weights by one cp.async.bulk. Shared memory: 8 rows of
// weights, and 8 rows of the layer before in fp32: at channels=hidden=1280 in bf16 20 + 40 KiB. Workspace: the hidden
// layer in fp32.
//
// Bound: bytes of the weights at channels=192, hidden=768 (1.5 MB); expected limiter: latency.
//
// Requires: with a perceptron, channels / 2 and hidden multiples of 16 bytes, 8 rows of weights and inputs in 192 KiB.
// Numerics: angles in double, all else fp32, one rounding at the end.
// Source: original; PTX ISA, "cp.async.bulk", "griddepcontrol".
#include <algorithm>

#include "kernels/device/launch.cuh"
#include "kernels/ptx/bulk.cuh"
#include "kernels/ptx/fence.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/timestep_embedding/device.cuh"

namespace noisefloor::timestep_embedding {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kImages = 8;

struct Layer {
  const void *w, *b;
  const float* in;  // timesteps for the first layer, else the layer before, [batch, inputs]
  void* out;
  int batch, inputs, outputs;
  bool activate, sin_first;
  Frequencies frequencies;
};

template <class T, class Out, bool kFirst>
__global__ void __launch_bounds__(kThreads) layer_kernel(const Layer a) {
  constexpr int kLanes = kVectorLanes<T>;
  extern __shared__ __align__(128) unsigned char storage[];
  __shared__ std::uint64_t barrier;
  const int first_output = static_cast<int>(blockIdx.x) * kWarps, first_image = static_cast<int>(blockIdx.y) * kImages;
  T* const weights = reinterpret_cast<T*>(storage);                       // [kWarps, inputs]
  auto* const x = reinterpret_cast<float*>(weights + kWarps * a.inputs);  // [kImages, inputs]
  const int images = min(kImages, a.batch - first_image);
  const int outputs = min(kWarps, a.outputs - first_output);

  // The first layer waits before it touches any tensor, and lets the second start only then: so the second's weights,
  // too, are what any kernel before both has left there.
  if constexpr (kFirst) ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  if (threadIdx.x == 0) {
    const std::uint32_t full = ptx::shared_address(&barrier);
    ptx::mbarrier_init(full, 1);
    ptx::fence_mbarrier_init();
    const auto bytes = static_cast<std::uint32_t>(outputs * a.inputs) * static_cast<std::uint32_t>(sizeof(T));
    ptx::mbarrier_arrive_expect_tx(full, bytes);
    // The second layer's weights are nothing that the first writes.
    ptx::bulk_load(ptx::shared_address(weights),
                   static_cast<const T*>(a.w) + static_cast<std::int64_t>(first_output) * a.inputs, bytes, full);
  }
  if constexpr (!kFirst) ptx::griddepcontrol_wait();
  if constexpr (kFirst) {
    const int half = a.inputs / 2;
    for (int i = static_cast<int>(threadIdx.x); i < images * half; i += kThreads) {
      const int image = i / half, k = i % half;
      float cosine, sine;
      cos_sin(turns_of(a.frequencies, k), a.in[first_image + image], cosine, sine);
      x[image * a.inputs + (a.sin_first ? half : 0) + k] = cosine;
      x[image * a.inputs + (a.sin_first ? 0 : half) + k] = sine;
    }
  } else {
    const float* const in = a.in + static_cast<std::int64_t>(first_image) * a.inputs;
    for (int i = static_cast<int>(threadIdx.x) * 4; i < images * a.inputs; i += kThreads * 4)
      *reinterpret_cast<float4*>(x + i) = *reinterpret_cast<const float4*>(in + i);
  }
  __syncthreads();
  ptx::mbarrier_wait(ptx::shared_address(&barrier), 0);

  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  if (warp >= outputs) return;
  float sums[kImages] = {};
  for (int k = lane * kLanes; k < a.inputs; k += 32 * kLanes) {
    float w[kLanes];
    unpack_vector<T>(*reinterpret_cast<const uint4*>(weights + warp * a.inputs + k), w);
#pragma unroll
    for (int i = 0; i < kImages; ++i) {
      if (i >= images) break;
#pragma unroll
      for (int part = 0; part < kLanes; part += 4) {
        const float4 v = *reinterpret_cast<const float4*>(x + i * a.inputs + k + part);
        sums[i] += w[part] * v.x + w[part + 1] * v.y + w[part + 2] * v.z + w[part + 3] * v.w;
      }
    }
  }
#pragma unroll
  for (float& sum : sums)
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
  const int output = first_output + warp;
  const float bias = to_float(static_cast<const T*>(a.b)[output]);
#pragma unroll
  for (int i = 0; i < kImages; ++i) {
    if (lane != i || i >= images) continue;
    const float value = sums[i] + bias;
    static_cast<Out*>(a.out)[static_cast<std::int64_t>(first_image + i) * a.outputs + output] =
        from_float<Out>(a.activate ? silu<T>(value) : value);
  }
}

template <class T, class Out, bool kFirst>
Status launch_layer(const Layer& layer, bool programmatic, Stream stream) {
  const auto inputs = static_cast<std::size_t>(layer.inputs);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>((layer.outputs + kWarps - 1) / kWarps),
                                       static_cast<unsigned>((layer.batch + kImages - 1) / kImages)),
                          .block = kThreads,
                          .shared_bytes = kWarps * inputs * sizeof(T) + kImages * inputs * sizeof(float),
                          .shared_limit = kMaxPtxSharedBytes,
                          .programmatic = programmatic};
  return launch_kernel("timestep_embedding layer_kernel", layer_kernel<T, Out, kFirst>, shape, stream, layer);
}

}  // namespace

Status launch_ptx_sm90a(const Problem& p, DType dtype, const Tensors& t, const Scratch& scratch,
                        const LaunchContext& context) {
  return with_type(dtype, [&]<class T>(T) {
    if (!p.perceptron()) return launch_embedding<T, true>(p, t, static_cast<T*>(t.y), context);
    auto* hidden = static_cast<float*>(scratch.workspace);
    const auto batch = static_cast<int>(p.batch), width = static_cast<int>(p.hidden);
    const Layer first{t.w1,
                      t.b1,
                      t.t,
                      hidden,
                      batch,
                      static_cast<int>(p.channels),
                      width,
                      true,
                      p.order == Order::sin_cos,
                      frequencies(p, t)};
    const Layer second{t.w2, t.b2, hidden, t.y, batch, width, width, p.final_silu, false, {}};
    const Status status = launch_layer<T, float, true>(first, context.programmatic_launch, context.stream);
    return status.ok() ? launch_layer<T, T, false>(second, true, context.stream) : status;
  });
}

}  // namespace noisefloor::timestep_embedding
