// @OP@: a CUDA kernel to write, as a row of noisefloor's. It builds as it stands; its row is `incorrect` until `kernel`
// writes the outputs. A whole example: noisefloor new-kernel groupnorm
//
// @BUILD@
// noisefloor sweep --plugin @OP@.so --ops @OP@ --networks all
//
// Without nvcc the same is a row of the host, in fp32:
// @HOST_BUILD@
#include <noisefloor/plugin.h>
#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#else
#define __global__
#endif

namespace {

// By name, read on the host. A choice is the number of its name, from 0.
struct Fields {
  const noisefloor_problem* problem;
  // @FIELDS@
};

// T is the row's element type; null is a tensor that the problem does not have.
template <class T>
struct Tensors {
  const noisefloor_problem* problem;
  // @TENSORS@
};

template <class T>
__global__ void kernel([[maybe_unused]] Fields fields, [[maybe_unused]] Tensors<T> tensors) {
  // Write here every element of @OUTPUTS@.
}

template <class T>
int launch_as(const noisefloor_launch* call) {
  const Fields fields{call->problem};
  const Tensors<T> tensors{call->problem};
#ifdef __CUDACC__
  constexpr int kBlocks = 1, kThreads = 128;  // as many as the kernel wants
  kernel<<<kBlocks, kThreads, 0, static_cast<cudaStream_t>(call->stream)>>>(fields, tensors);
  return cudaGetLastError();
#else
  kernel(fields, tensors);
  return 0;
#endif
}

int launch(void*, const noisefloor_launch* call) {
#ifdef __CUDACC__
  if (call->problem->dtype == NOISEFLOOR_BF16) return launch_as<__nv_bfloat16>(call);
  if (call->problem->dtype == NOISEFLOOR_FP16) return launch_as<__half>(call);
#endif
  return launch_as<float>(call);
}

const char* can_run([[maybe_unused]] const noisefloor_problem* problem) {
#ifndef __CUDACC__
  if (problem->dtype != NOISEFLOOR_FP32) return "needs nvcc for bf16 and fp16";
#endif
  return nullptr;  // it can; else why not: "needs m in multiples of 8"
}

const char* error_text(void*, [[maybe_unused]] int error) {
#ifdef __CUDACC__
  return cudaGetErrorString(static_cast<cudaError_t>(error));
#else
  return "an error";
#endif
}

}  // namespace

const noisefloor_plugin* noisefloor_plugin_at(uint32_t index) {
  static const noisefloor_plugin row = [] {
    noisefloor_plugin mine{};
    mine.abi = NOISEFLOOR_PLUGIN_ABI;
    mine.size = sizeof(noisefloor_plugin);
    mine.op = "@OP@";
#ifdef __CUDACC__
    mine.name = "my_cuda";
    mine.kind = "naive";
    mine.arch = "any";
#else
    mine.name = "my_host";
    mine.kind = mine.arch = "host";
#endif
    mine.can_run = can_run;
    mine.launch = launch;
    mine.error_text = error_text;
    return mine;
  }();
  return index == 0 ? &row : nullptr;
}
