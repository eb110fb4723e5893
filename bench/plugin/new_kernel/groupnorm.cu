// groupnorm: a CUDA kernel to start from, as a row of noisefloor's. One block normalises one group: sums in fp32, then
// another pass over the group.
//
// @BUILD@
// noisefloor sweep --plugin groupnorm.so --ops groupnorm --networks sd15-b2
//
// @TABLE@
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <noisefloor/plugin.h>
#include <cstring>

namespace {

constexpr int kThreads = 256;

__device__ float sum_of_block(float value) {
  __shared__ float warps[kThreads / 32];
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  __syncthreads();  // the last sum was read
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
  for (const float warp : warps) sum += warp;
  return sum;
}

// x and y are [n, hw, channels]; a block has the channels of one group, of one image.
template <class T>
__global__ void groupnorm(const T* x, const T* gamma, const T* beta, T* y, int hw, int channels, int group, float eps,
                          bool silu) {
  const int first = blockIdx.x * group, elements = hw * group;
  const int64_t image = int64_t{blockIdx.y} * hw * channels + first;
  const auto place = [&](int i) { return image + int64_t{i / group} * channels + i % group; };
  float sum = 0;
  for (int i = threadIdx.x; i < elements; i += kThreads) sum += float(x[place(i)]);
  const float mean = sum_of_block(sum) / elements;
  float squares = 0;
  for (int i = threadIdx.x; i < elements; i += kThreads) {
    const float difference = float(x[place(i)]) - mean;
    squares += difference * difference;
  }
  const float rstd = rsqrtf(sum_of_block(squares) / elements + eps);
  for (int i = threadIdx.x; i < elements; i += kThreads) {
    const int channel = first + i % group;
    float value = (float(x[place(i)]) - mean) * rstd * float(gamma[channel]) + float(beta[channel]);
    if (silu) value /= 1 + expf(-value);
    y[place(i)] = T(value);
  }
}

template <class T>
int launch_as(const noisefloor_launch* call) {
  const noisefloor_problem* const p = call->problem;
  const auto integer = [&](const char* name) { return static_cast<int>(noisefloor_find_field(p, name)->integer); };
  const auto data = [&](const char* name) { return static_cast<const T*>(noisefloor_find_data(p, name)); };
  const int groups = integer("groups"), channels = integer("channels");
  const bool silu = std::strcmp(noisefloor_find_field(p, "fusion")->text, "silu") == 0;
  groupnorm<<<dim3(groups, integer("n")), kThreads, 0, static_cast<cudaStream_t>(call->stream)>>>(
      data("x"), data("gamma"), data("beta"), static_cast<T*>(noisefloor_find_data(p, "y")), integer("hw"), channels,
      channels / groups, static_cast<float>(noisefloor_find_field(p, "eps")->real), silu);
  return cudaGetLastError();
}

int launch(void*, const noisefloor_launch* call) {
  switch (call->problem->dtype) {
    case NOISEFLOOR_BF16:
      return launch_as<__nv_bfloat16>(call);
    case NOISEFLOOR_FP16:
      return launch_as<__half>(call);
    default:
      return launch_as<float>(call);
  }
}

const char* can_run(const noisefloor_problem* p) {
  if (std::strcmp(noisefloor_find_field(p, "fusion")->text, "silu+ss") == 0) return "needs fusion none or silu";
  if (noisefloor_find_field(p, "stats")->integer != 0 || noisefloor_find_field(p, "coefficients")->integer != 0 ||
      noisefloor_find_field(p, "skip_channels")->integer != 0 || noisefloor_find_field(p, "down_w")->integer != 0 ||
      std::strcmp(noisefloor_find_field(p, "slab_stats")->text, "none") != 0)
    return "needs stats=0, coefficients=0, skip_channels=0, down_w=0 and slab_stats=none";
  const int64_t group = noisefloor_find_field(p, "channels")->integer / noisefloor_find_field(p, "groups")->integer;
  return noisefloor_find_field(p, "hw")->integer * group <= INT32_MAX ? nullptr : "needs fewer elements in a group";
}

const char* error_text(void*, int error) {
  return cudaGetErrorString(static_cast<cudaError_t>(error));
}

}  // namespace

const noisefloor_plugin* noisefloor_plugin_at(uint32_t index) {
  static const noisefloor_plugin row = [] {
    noisefloor_plugin mine{};
    mine.abi = NOISEFLOOR_PLUGIN_ABI;
    mine.size = sizeof(noisefloor_plugin);
    mine.op = "groupnorm";
    mine.name = "my_cuda";
    mine.kind = "naive";
    mine.arch = "sm_75";
    mine.can_run = can_run;
    mine.launch = launch;
    mine.error_text = error_text;
    return mine;
  }();
  return index == 0 ? &row : nullptr;
}
