// The suspects of edge_levels.cu, each a small function that does one thing a library might do. What it cannot do, it
// says in `note`, and goes on. None touches nothing<0>, which is what is measured.
#pragma once
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace edge_levels {

inline std::string note;       // what a step or a cure has to say
inline cudaStream_t stream{};  // that edges are measured on
inline int devices = 1;        // of this machine

inline void say(const std::string& words) {
  note += (note.empty() ? "" : "; ") + words;
}

inline bool tried(cudaError_t error, const std::string& call) {
  if (error == cudaSuccess) return true;
  say(call.substr(0, call.find('(')) + ": " + cudaGetErrorName(error));
  cudaGetLastError();  // or the next launch would seem to fail
  return false;
}
#define EDGE_LEVELS_TRY(call) ::edge_levels::tried((call), #call)

// Kernels

template <int kUse>  // 0: the measured one, 1: elsewhere, 2: has attributes of its own
__global__ void nothing() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

template <int kBytes>
__global__ void use_stack(int place, int* sink) {
  volatile char local[kBytes];
  local[place] = 1;
  if (local[place] == 2) *sink = 1;  // never
}

__global__ void use_shared(int* sink) {
  extern __shared__ volatile char bytes[];
  bytes[threadIdx.x] = 1;
  if (bytes[threadIdx.x] == 2) *sink = 1;  // never
}

__global__ void cooperate() {
  cooperative_groups::this_grid().sync();
}

__global__ void print() {
  printf("  (printed by a kernel)\n");
}

__global__ void allocate() {
  auto* bytes = static_cast<volatile char*>(malloc(64));
  if (bytes != nullptr) bytes[0] = 1;
  free(const_cast<char*>(bytes));
}

template <typename... P>
bool launch(void (*kernel)(P...), int grid, int block, std::size_t shared, std::type_identity_t<P>... arguments) {
  kernel<<<grid, block, shared, stream>>>(arguments...);
  return tried(cudaGetLastError(), "launch");
}

// A small kernel, and the end of all that is queued.
inline void finish() {
  launch(nothing<1>, 1, 32, 0);
  EDGE_LEVELS_TRY(cudaDeviceSynchronize());
}

inline cudaError_t capture(cudaGraphExec_t* executable, void (*kernel)(), int length, bool programmatic) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = 1, config.blockDim = 32, config.stream = stream;
  config.attrs = &attribute, config.numAttrs = programmatic ? 1 : 0;
  cudaGraph_t graph = nullptr;
  cudaError_t error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  if (error != cudaSuccess) return error;
  for (int i = 0; i < length && error == cudaSuccess; ++i) error = cudaLaunchKernelEx(&config, kernel);
  const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
  if (error == cudaSuccess) error = ended;
  if (error == cudaSuccess) error = cudaGraphInstantiate(executable, graph, 0);
  const cudaError_t destroyed = graph == nullptr ? cudaSuccess : cudaGraphDestroy(graph);
  return error == cudaSuccess ? destroyed : error;
}

// Suspects

inline void control() {}

template <int kBytes>
void stack() {
  launch(use_stack<kBytes>, 1, 32, 0, 5, nullptr);
  finish();
}

template <int kBytes>
void stack_limit() {
  std::size_t was = 0;
  EDGE_LEVELS_TRY(cudaDeviceGetLimit(&was, cudaLimitStackSize));
  say("was " + std::to_string(was));
  EDGE_LEVELS_TRY(cudaDeviceSetLimit(cudaLimitStackSize, kBytes));
  finish();
}

inline void cooperative() {
  EDGE_LEVELS_TRY(cudaLaunchCooperativeKernel(cooperate, dim3(100), dim3(128), nullptr, 0, stream));
  finish();
}

template <int kBlocks>
void cluster() {
  if constexpr (kBlocks > 8)
    EDGE_LEVELS_TRY(cudaFuncSetAttribute(nothing<2>, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {kBlocks, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = 4 * kBlocks, config.blockDim = 128, config.stream = stream;
  config.attrs = &attribute, config.numAttrs = 1;
  EDGE_LEVELS_TRY(cudaLaunchKernelEx(&config, nothing<2>));
  finish();
}

inline void programmatic_graph() {
  cudaGraphExec_t graph = nullptr;
  if (!EDGE_LEVELS_TRY(capture(&graph, nothing<1>, 64, true))) return;
  EDGE_LEVELS_TRY(cudaGraphLaunch(graph, stream));
  EDGE_LEVELS_TRY(cudaStreamSynchronize(stream));
  EDGE_LEVELS_TRY(cudaGraphExecDestroy(graph));
}

inline void shared_200k() {
  constexpr int kBytes = 200 << 10;
  EDGE_LEVELS_TRY(cudaFuncSetAttribute(use_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  launch(use_shared, 132, 128, kBytes, nullptr);
  finish();
}

inline void default_streams() {
  nothing<1><<<1, 32>>>();
  tried(cudaGetLastError(), "launch on the default stream");
  nothing<1><<<1, 32, 0, cudaStreamPerThread>>>();
  tried(cudaGetLastError(), "launch on the thread's stream");
  finish();
}

inline std::vector<cudaStream_t> streams;
enum class Use { none, at_once, in_turns };  // a kernel on each: at the same time, or one when the other has ended
inline void add_streams(int count, int priority, Use use) {
  for (int i = 0; i < count; ++i) {
    cudaStream_t one{};
    if (!EDGE_LEVELS_TRY(cudaStreamCreateWithPriority(&one, cudaStreamNonBlocking, priority))) return;
    streams.push_back(one);
    if (use == Use::none) continue;
    nothing<1><<<1, 32, 0, one>>>();
    if (!tried(cudaGetLastError(), "launch on another stream")) return;
    if (use == Use::in_turns && !EDGE_LEVELS_TRY(cudaStreamSynchronize(one))) return;
  }
  finish();
}
template <int kCount, Use kUse>
void more_streams() {
  add_streams(kCount, 0, kUse);
}
inline void streams_of_high_priority() {
  int least = 0, greatest = 0;
  EDGE_LEVELS_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  add_streams(4, greatest, Use::at_once);
}
inline void streams_destroyed() {
  say(std::to_string(streams.size()) + " streams");
  for (cudaStream_t one : streams) EDGE_LEVELS_TRY(cudaStreamDestroy(one));
  streams.clear();
}

// What a harness does between two cases.
inline void copies(cudaMemcpyKind kind) {
  std::vector<char> host(64 << 20);
  void* bytes = nullptr;
  if (!EDGE_LEVELS_TRY(cudaMalloc(&bytes, host.size()))) return;
  if (kind == cudaMemcpyHostToDevice)
    EDGE_LEVELS_TRY(cudaMemcpy(bytes, host.data(), host.size(), kind));
  else
    EDGE_LEVELS_TRY(cudaMemcpy(host.data(), bytes, host.size(), kind));
  EDGE_LEVELS_TRY(cudaFree(bytes));
}

inline void events_1000() {
  std::vector<cudaEvent_t> events(1000);
  for (cudaEvent_t& event : events) {
    if (!EDGE_LEVELS_TRY(cudaEventCreate(&event))) return;
    EDGE_LEVELS_TRY(cudaEventRecord(event, stream));
  }
  EDGE_LEVELS_TRY(cudaStreamSynchronize(stream));
  for (cudaEvent_t event : events) EDGE_LEVELS_TRY(cudaEventDestroy(event));
}

inline std::vector<cudaGraphExec_t> graphs;
inline void graphs_100() {
  for (int i = 0; i < 100; ++i) {
    cudaGraphExec_t graph = nullptr;
    if (!EDGE_LEVELS_TRY(capture(&graph, nothing<1>, 20, false))) return;
    graphs.push_back(graph);
    EDGE_LEVELS_TRY(cudaGraphLaunch(graph, stream));
  }
  finish();
}
inline void graphs_destroyed() {
  say(std::to_string(graphs.size()) + " graphs");
  for (cudaGraphExec_t graph : graphs) EDGE_LEVELS_TRY(cudaGraphExecDestroy(graph));
  graphs.clear();
}

inline void memory_10gb() {
  void* bytes = nullptr;
  if (!EDGE_LEVELS_TRY(cudaMalloc(&bytes, 10ull << 30))) return;
  EDGE_LEVELS_TRY(cudaMemsetAsync(bytes, 1, 10ull << 30, stream));
  EDGE_LEVELS_TRY(cudaStreamSynchronize(stream));
  EDGE_LEVELS_TRY(cudaFree(bytes));
}
inline void memory_pool() {
  void* bytes = nullptr;
  cudaMemPool_t pool{};
  if (!EDGE_LEVELS_TRY(cudaMallocAsync(&bytes, 1ull << 30, stream))) return;
  EDGE_LEVELS_TRY(cudaMemsetAsync(bytes, 1, 1ull << 30, stream));
  EDGE_LEVELS_TRY(cudaFreeAsync(bytes, stream));
  EDGE_LEVELS_TRY(cudaStreamSynchronize(stream));
  if (EDGE_LEVELS_TRY(cudaDeviceGetDefaultMemPool(&pool, 0))) EDGE_LEVELS_TRY(cudaMemPoolTrimTo(pool, 0));
}
inline void memory_managed() {
  void* bytes = nullptr;
  if (!EDGE_LEVELS_TRY(cudaMallocManaged(&bytes, 64 << 20))) return;
  std::memset(bytes, 1, 64 << 20);
  EDGE_LEVELS_TRY(cudaMemsetAsync(bytes, 2, 64 << 20, stream));
  EDGE_LEVELS_TRY(cudaStreamSynchronize(stream));
  EDGE_LEVELS_TRY(cudaFree(bytes));
}

// A context on the second GPU, which then stays.
inline void second_gpu() {
  if (devices < 2) return say("one GPU: not done");
  if (EDGE_LEVELS_TRY(cudaSetDevice(1))) {
    nothing<1><<<1, 32>>>();
    tried(cudaGetLastError(), "launch on the second GPU");
    EDGE_LEVELS_TRY(cudaDeviceSynchronize());
  }
  EDGE_LEVELS_TRY(cudaSetDevice(0));
}
inline void second_gpu_peer() {
  if (devices < 2) return say("one GPU: not done");
  EDGE_LEVELS_TRY(cudaDeviceEnablePeerAccess(1, 0));
  finish();
}

inline void device_printf() {
  launch(print, 1, 1, 0);
  finish();
}
inline void device_malloc() {
  launch(allocate, 1, 32, 0);
  finish();
}

inline void persisting_l2_set() {
  EDGE_LEVELS_TRY(cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, 16 << 20));
  finish();
}
inline void persisting_l2_reset() {
  EDGE_LEVELS_TRY(cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, 0));
  EDGE_LEVELS_TRY(cudaCtxResetPersistingL2Cache());
  finish();
}

inline void failing_launches() {
  nothing<1><<<1, 2048, 0, stream>>>();
  if (cudaGetLastError() == cudaSuccess) say("2048 threads were not refused");
  nothing<1><<<1, 32, 1 << 20, stream>>>();
  if (cudaGetLastError() == cudaSuccess) say("1 MB of shared memory was not refused");
  finish();
}

inline void invalidated_capture() {
  cudaGraph_t graph = nullptr;
  if (!EDGE_LEVELS_TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal))) return;
  launch(nothing<1>, 1, 32, 0);
  if (cudaStreamSynchronize(stream) == cudaSuccess) say("a captured stream was waited for");
  if (cudaStreamEndCapture(stream, &graph) == cudaSuccess) say("the capture stayed valid");
  cudaGetLastError();
  if (graph != nullptr) EDGE_LEVELS_TRY(cudaGraphDestroy(graph));
  finish();
}

}  // namespace edge_levels
