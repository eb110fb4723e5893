#include "bench/counters/driver_calls.h"

#include <fmt/format.h>

#include <stdexcept>

#include "bench/platform/cuda_timing.h"

namespace noisefloor {
namespace {

template <class Function>
void load(Function& function, const char* name) {
  constexpr unsigned kVersion = 12040;  // CUDA 12.4, the first with cuFuncGetParamInfo
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  check_cuda(cudaGetDriverEntryPointByVersion(name, &entry, kVersion, cudaEnableDefault, &found), name);
  if (found != cudaDriverEntryPointSuccess)
    throw std::runtime_error(fmt::format("the driver lacks {}; it must support CUDA 12.4", name));
  function = reinterpret_cast<Function>(entry);
}

cudaError_t get_edges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to, cudaGraphEdgeData* data,
                      std::size_t* count) {
#if CUDART_VERSION >= 13000
  return cudaGraphGetEdges(graph, from, to, data, count);
#else
  return cudaGraphGetEdges_v2(graph, from, to, data, count);
#endif
}

}  // namespace

DriverCalls::DriverCalls() {
  load(node_params, "cuGraphKernelNodeGetParams");
  load(node_attribute, "cuGraphKernelNodeGetAttribute");
  load(kernel_function, "cuKernelGetFunction");
  load(function_attribute, "cuFuncGetAttribute");
  load(function_name, "cuFuncGetName");
  load(parameter, "cuFuncGetParamInfo");
  load(max_active_blocks, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
}

CUfunction DriverCalls::function_of(cudaGraphNode_t kernel, CUDA_KERNEL_NODE_PARAMS& params) const {
  check_driver(node_params(kernel, &params), "cuGraphKernelNodeGetParams");
  CUfunction function = params.func;
  if (function == nullptr) check_driver(kernel_function(&function, params.kern), "cuKernelGetFunction");
  return function;
}

void check_driver(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS)
    throw std::runtime_error(fmt::format("{} failed with error {}", call, static_cast<int>(result)));
}

std::vector<GraphEdge> edges_of(cudaGraph_t graph) {
  std::size_t count = 0;
  CUDA_CHECK(get_edges(graph, nullptr, nullptr, nullptr, &count));
  std::vector<cudaGraphNode_t> from(count), to(count);
  std::vector<cudaGraphEdgeData> data(count);
  if (count > 0) CUDA_CHECK(get_edges(graph, from.data(), to.data(), data.data(), &count));
  std::vector<GraphEdge> edges;
  for (std::size_t i = 0; i < count; ++i) edges.push_back({from[i], to[i], data[i]});
  return edges;
}

}  // namespace noisefloor
