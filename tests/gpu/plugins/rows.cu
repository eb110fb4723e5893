// Plugins of elementwise op=relu in fp32 on a GPU: right ones, and every kind of wrong that a stream, a graph or L2
// makes possible; what a host makes possible, too, is in tests/bench/plugin. test_plugins_on_a_gpu.py compiles this.
#include <cuda_runtime.h>

#include <noisefloor/plugin.h>
#include <vector>

namespace {

__global__ void relu(int64_t elements, const float* x, float* y) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < elements) y[i] = x[i] > 0 ? x[i] : 0;
}
// Where a launch before it left nothing.
__global__ void relu_of_nan(int64_t elements, const float* x, float* y) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < elements && isnan(y[i])) y[i] = x[i] > 0 ? x[i] : 0;
}
__global__ void nothing() {}
__global__ void add_one(float* place) {
  *place += 1;
}

int64_t elements_of(const noisefloor_launch* call) {
  int64_t count = 1;
  for (int32_t i = 0; i < call->problem->tensors[0].rank; ++i) count *= call->problem->tensors[0].shape[i];
  return count;
}
float* data(const noisefloor_launch* call, int tensor) {
  return static_cast<float*>(call->problem->tensors[tensor].data);
}
cudaStream_t stream_of(const noisefloor_launch* call) {
  return static_cast<cudaStream_t>(call->stream);
}
int relu_on(cudaStream_t stream, const noisefloor_launch* call) {
  const int64_t elements = elements_of(call);
  relu<<<static_cast<unsigned>((elements + 255) / 256), 256, 0, stream>>>(elements, data(call, 0), data(call, 1));
  return cudaGetLastError();
}
cudaStream_t side_stream() {
  static cudaStream_t stream = [] {
    cudaStream_t made = nullptr;
    cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
    return made;
  }();
  return stream;
}
cudaEvent_t event(int which) {
  static cudaEvent_t events[2] = {};
  if (events[which] == nullptr) cudaEventCreateWithFlags(&events[which], cudaEventDisableTiming);
  return events[which];
}

int right(void*, const noisefloor_launch* call) {
  return relu_on(stream_of(call), call);
}
int done_already(void*, const noisefloor_launch* call) {
  const int64_t elements = elements_of(call);
  relu_of_nan<<<static_cast<unsigned>((elements + 255) / 256), 256, 0, stream_of(call)>>>(elements, data(call, 0),
                                                                                          data(call, 1));
  return cudaGetLastError();
}
int other_stream(void*, const noisefloor_launch* call) {
  nothing<<<1, 1, 0, stream_of(call)>>>();
  return relu_on(side_stream(), call);
}
int only_other_stream(void*, const noisefloor_launch* call) {
  return relu_on(side_stream(), call);
}
int default_stream(void*, const noisefloor_launch* call) {
  return relu_on(nullptr, call);
}
int forked(const noisefloor_launch* call, bool joined) {
  nothing<<<1, 1, 0, stream_of(call)>>>();
  cudaEventRecord(event(0), stream_of(call));
  cudaStreamWaitEvent(side_stream(), event(0), 0);
  const int error = relu_on(side_stream(), call);
  if (!joined) return error;
  cudaEventRecord(event(1), side_stream());
  cudaStreamWaitEvent(stream_of(call), event(1), 0);
  return error != 0 ? error : cudaGetLastError();
}
int joined(void*, const noisefloor_launch* call) {
  return forked(call, true);
}
int not_joined(void*, const noisefloor_launch* call) {
  return forked(call, false);
}

int illegal(void*, const noisefloor_launch* call) {
  add_one<<<1, 1, 0, stream_of(call)>>>(reinterpret_cast<float*>(64));
  return cudaGetLastError();
}
int allocates(void*, const noisefloor_launch* call) {
  void* memory = nullptr;
  if (const int error = cudaMalloc(&memory, 1024)) return error;
  right(nullptr, call);
  return cudaFree(memory);
}
constexpr std::size_t kSetAside = 1 << 20;
int set_aside(const noisefloor_problem*, void**) {
  return cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, kSetAside);
}
int sets_aside(void*, const noisefloor_launch* call) {
  cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, kSetAside);
  return relu_on(stream_of(call), call);
}

const char* can_run(const noisefloor_problem* problem) {
  return problem->dtype == NOISEFLOOR_FP32 ? nullptr : "needs fp32";
}
const char* words(void*, int error) {
  return cudaGetErrorString(static_cast<cudaError_t>(error));
}

std::vector<noisefloor_plugin> rows() {
  std::vector<noisefloor_plugin> all;
  const auto add = [&](const char* name, int (*launch)(void*, const noisefloor_launch*),
                       int (*create)(const noisefloor_problem*, void**) = nullptr) {
    noisefloor_plugin row{};
    row.abi = NOISEFLOOR_PLUGIN_ABI;
    row.size = sizeof row;
    row.op = "elementwise";
    row.name = name;
    row.kind = "naive";
    row.arch = "any";
    row.can_run = can_run;
    row.create = create;
    row.launch = launch;
    row.error_text = words;
    all.push_back(row);
  };
  add("right", right);
  add("joined", joined);
  add("set_aside", right, set_aside);
  add("done_already", done_already);
  add("other_stream", other_stream);
  add("only_other_stream", only_other_stream);
  add("default_stream", default_stream);
  add("not_joined", not_joined);
  add("illegal", illegal);
  add("allocates", allocates);
  add("sets_aside", sets_aside);
  return all;
}

}  // namespace

const noisefloor_plugin* noisefloor_plugin_at(uint32_t index) {
  static const std::vector<noisefloor_plugin> all = rows();
  return index < all.size() ? &all[index] : nullptr;
}
