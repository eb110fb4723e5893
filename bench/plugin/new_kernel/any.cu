// @OP@: a kernel to start from, as a row of noisefloor's: each thread of a GPU computes what `operator()` says.
//
// @BUILD@
// noisefloor sweep --plugin @OP@.so --ops @OP@ --networks all
//
// Without nvcc the same is a row of the host, on one core and in fp32 and bf16:
// @HOST_BUILD@
//
// @TABLE@
#include <noisefloor/plugin.h>

#include <cmath>
#include <cstring>
#ifdef __CUDACC__
#include <cuda_fp16.h>
#else
#define __host__
#define __device__
#endif

namespace {

// A tensor's elements as floats, whatever their type; false where the problem has none of that name.
struct Numbers {
  void* data = nullptr;
  int32_t dtype = NOISEFLOOR_FP32;

  [[maybe_unused]] __host__ __device__ explicit operator bool() const { return data != nullptr; }
  __host__ __device__ float operator[](int64_t i) const {
    if (dtype == NOISEFLOOR_FP32) return static_cast<const float*>(data)[i];
#ifdef __CUDACC__
    if (dtype == NOISEFLOOR_FP16) return __half2float(static_cast<const __half*>(data)[i]);
#endif
    const uint32_t bits = uint32_t{static_cast<const uint16_t*>(data)[i]} << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
  }
  __host__ __device__ void set(int64_t i, float value) const {
    if (dtype == NOISEFLOOR_FP32) {
      static_cast<float*>(data)[i] = value;
      return;
    }
#ifdef __CUDACC__
    if (dtype == NOISEFLOOR_FP16) {
      static_cast<__half*>(data)[i] = __float2half(value);
      return;
    }
#endif
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    static_cast<uint16_t*>(data)[i] =
        value == value ? (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 : 0x7FC0;  // to nearest even
  }
};

// A problem's fields and tensors by name, as `noisefloor list ops` prints them.
struct Case {
  const noisefloor_problem* problem;

  const noisefloor_field& field(const char* name) const {
    int32_t i = 0;
    while (std::strcmp(problem->fields[i].name, name) != 0) ++i;
    return problem->fields[i];
  }
  int64_t integer(const char* name) const { return field(name).integer; }
  float real(const char* name) const { return static_cast<float>(field(name).real); }
  bool is(const char* name, const char* text) const { return std::strcmp(field(name).text, text) == 0; }
  const noisefloor_tensor* tensor(const char* name) const {
    for (int32_t i = 0; i < problem->tensor_count; ++i)
      if (std::strcmp(problem->tensors[i].name, name) == 0) return &problem->tensors[i];
    return nullptr;
  }
  Numbers numbers(const char* name) const {
    const noisefloor_tensor* const one = tensor(name);
    return one == nullptr ? Numbers() : Numbers{one->data, one->dtype};
  }
  const char* why_not() const { return nullptr; }  // the problem cannot be run
};

// @FORMULA@

#ifdef __CUDACC__
__global__ void run(Kernel kernel, int64_t count) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < count) kernel(i);
}
#endif

int launch(void*, const noisefloor_launch* call) {
  const Kernel kernel{Case{call->problem}};
  const int64_t count = kernel.count();
#ifdef __CUDACC__
  constexpr int kThreads = 128;
  run<<<static_cast<unsigned>((count + kThreads - 1) / kThreads), kThreads, 0,
        static_cast<cudaStream_t>(call->stream)>>>(kernel, count);
  return cudaGetLastError();
#else
  for (int64_t i = 0; i < count; ++i) kernel(i);
  return 0;
#endif
}

const char* can_run(const noisefloor_problem* problem) {
#ifdef __CUDACC__
  if (problem->compute_capability < 75) return "needs sm_75 or newer";
#else
  for (int32_t i = 0; i < problem->tensor_count; ++i)
    if (problem->tensors[i].dtype == NOISEFLOOR_FP16) return "needs nvcc for fp16";
#endif
  return Kernel{Case{problem}}.why_not();
}

const char* error_text(void*, int error) {
#ifdef __CUDACC__
  return cudaGetErrorString(static_cast<cudaError_t>(error));
#else
  return error == 0 ? "no error" : "an error";
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
    mine.arch = "sm_75";
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
