#include <set>
#include <stdexcept>

#include "bench/counters/driver_calls.h"
#include "bench/counters/kernel_resources.h"
#include "bench/platform/cuda_timing.h"

namespace noisefloor {
namespace {

// Nodes of a graph, without the graphs within it, with an ordinary edge that leads to them.
int behind_ordinary_edges(cudaGraph_t graph) {
  std::set<cudaGraphNode_t> behind;
  for (const GraphEdge& edge : edges_of(graph))
    if (edge.data.type == cudaGraphDependencyTypeDefault) behind.insert(edge.to);
  return static_cast<int>(behind.size());
}

SmLimits current_limits() {
  int device = 0;
  CUDA_CHECK(cudaGetDevice(&device));
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    CUDA_CHECK(cudaDeviceGetAttribute(&value, which, device));
    return value;
  };
  return {.count = attribute(cudaDevAttrMultiProcessorCount),
          .warp_size = attribute(cudaDevAttrWarpSize),
          .threads = attribute(cudaDevAttrMaxThreadsPerMultiProcessor),
          .blocks = attribute(cudaDevAttrMaxBlocksPerMultiprocessor),
          .registers = attribute(cudaDevAttrMaxRegistersPerMultiprocessor),
          .shared_bytes = static_cast<std::size_t>(attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor)),
          .shared_bytes_reserved = static_cast<std::size_t>(attribute(cudaDevAttrReservedSharedMemoryPerBlock))};
}

KernelResources resources_of(const DriverCalls& driver, const SmLimits& limits, cudaGraphNode_t node) {
  CUDA_KERNEL_NODE_PARAMS params{};
  const CUfunction function = driver.function_of(node, params);
  const auto attribute = [&](CUfunction_attribute which) {
    int value = 0;
    check_driver(driver.function_attribute(&value, which, function), "cuFuncGetAttribute");
    return value;
  };

  KernelResources result;
  const char* name = nullptr;
  check_driver(driver.function_name(&name, function), "cuFuncGetName");
  result.name = demangled(name);
  result.grid = {params.gridDimX, params.gridDimY, params.gridDimZ};
  result.block = {params.blockDimX, params.blockDimY, params.blockDimZ};
  result.dynamic_shared_bytes = params.sharedMemBytes;
  result.static_shared_bytes = static_cast<std::size_t>(attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
  result.registers = attribute(CU_FUNC_ATTRIBUTE_NUM_REGS);
  result.local_bytes = static_cast<std::size_t>(attribute(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES));

  check_driver(driver.max_active_blocks(&result.blocks_per_sm, function, static_cast<int>(result.threads()),
                                        params.sharedMemBytes),
               "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  complete_occupancy(result, limits);
  return result;
}

}  // namespace

std::vector<KernelResources> kernel_resources(Stream stream, const std::function<Status()>& enqueue) {
  const CapturedGraph graph(stream, enqueue, 1);
  std::vector<cudaGraphNode_t> nodes;
  visit_nodes(graph, [&](cudaGraphNode_t node, cudaGraphNodeType type) {
    if (type == cudaGraphNodeTypeKernel) nodes.push_back(node);
  });
  const DriverCalls driver;
  const SmLimits limits = current_limits();
  std::vector<KernelResources> kernels;
  for (const cudaGraphNode_t node : nodes) {
    try {
      kernels.push_back(resources_of(driver, limits, node));
    } catch (const std::runtime_error&) {  // of a library's, perhaps: the others of a network are still known
      if (nodes.size() == 1) throw;
      kernels.push_back({.name = kUnknownKernel});
    }
  }
  return kernels;
}

int ordinary_edges(Stream stream, const std::function<Status()>& enqueue) {
  const auto in_series = [&](int launches) {
    const CapturedGraph graph(stream, enqueue, launches);
    int found = behind_ordinary_edges(graph);
    visit_nodes(graph, [&](cudaGraphNode_t node, cudaGraphNodeType type) {
      if (type == cudaGraphNodeTypeGraph) found += behind_ordinary_edges(graph_within(node));
    });
    return found;
  };
  return in_series(2) - in_series(1);
}

}  // namespace noisefloor
