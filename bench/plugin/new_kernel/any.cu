// @OP@: a CUDA kernel to start from, as a row of noisefloor's. It writes zeros, which the row calls incorrect, until
// the marked line is yours.
//
// @BUILD@
// noisefloor sweep --plugin @OP@.so --ops @OP@ --networks all
//
// @TABLE@
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <noisefloor/plugin.h>
#include <cstring>

namespace {

// `name`, or the first output where that is null.
const noisefloor_tensor* tensor(const noisefloor_problem* problem, const char* name) {
  for (int32_t i = 0; i < problem->tensor_count; ++i) {
    const noisefloor_tensor* const one = &problem->tensors[i];
    if (name == nullptr ? one->role != NOISEFLOOR_IN : std::strcmp(one->name, name) == 0) return one;
  }
  return nullptr;  // this problem has none
}

int64_t elements_of(const noisefloor_tensor* tensor) {
  int64_t count = 1;
  for (int32_t axis = 0; axis < tensor->rank; ++axis) count *= tensor->shape[axis];
  return count;
}

template <class T>
__global__ void kernel(int64_t elements, T* out) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < elements) out[i] = T(0.0f);  // your formula; a field of the problem by its name: see `fields` of plugin.h
}

template <class T>
int launch_as(const noisefloor_launch* call) {
  const noisefloor_tensor* const out = tensor(call->problem, nullptr);
  constexpr int kThreads = 256;
  const int64_t elements = elements_of(out);
  kernel<<<static_cast<unsigned>((elements + kThreads - 1) / kThreads), kThreads, 0,
           static_cast<cudaStream_t>(call->stream)>>>(elements, static_cast<T*>(out->data));
  return cudaGetLastError();
}

int launch(void*, const noisefloor_launch* call) {
  switch (tensor(call->problem, nullptr)->dtype) {
    case NOISEFLOOR_BF16:
      return launch_as<__nv_bfloat16>(call);
    case NOISEFLOOR_FP16:
      return launch_as<__half>(call);
    default:
      return launch_as<float>(call);
  }
}

const char* can_run(const noisefloor_problem* problem) {
  return problem->compute_capability >= 75 ? nullptr : "needs sm_75 or newer";
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
    mine.op = "@OP@";
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
