#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <set>
#include <stdexcept>

#include "bench/counters/kernel_resources.h"
#include "bench/platform/cuda_timing.h"

namespace noisefloor {
namespace {

// The driver's calls, asked through the runtime, so that libcuda need not be linked. Since CUDA 12.3 all of them are
// there.
struct Driver {
  decltype(&cuGraphKernelNodeGetParams) node_params;
  decltype(&cuKernelGetFunction) kernel_function;
  decltype(&cuFuncGetAttribute) function_attribute;
  decltype(&cuFuncGetName) function_name;
  decltype(&cuOccupancyMaxActiveBlocksPerMultiprocessor) max_active_blocks;

  Driver() {
    load(node_params, "cuGraphKernelNodeGetParams");
    load(kernel_function, "cuKernelGetFunction");
    load(function_attribute, "cuFuncGetAttribute");
    load(function_name, "cuFuncGetName");
    load(max_active_blocks, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  }

 private:
  template <class Function>
  static void load(Function& function, const char* name) {
    constexpr unsigned kVersion = 12030;  // CUDA 12.3, the first with cuFuncGetName
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    check_cuda(cudaGetDriverEntryPointByVersion(name, &entry, kVersion, cudaEnableDefault, &found), name);
    if (found != cudaDriverEntryPointSuccess)
      throw std::runtime_error(fmt::format("the driver lacks {}; it must support CUDA 12.3", name));
    function = reinterpret_cast<Function>(entry);
  }
};

void check(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS)
    throw std::runtime_error(fmt::format("{} failed with error {}", call, static_cast<int>(result)));
}

cudaError_t edges_of(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to, cudaGraphEdgeData* data,
                     std::size_t* count) {
#if CUDART_VERSION >= 13000
  return cudaGraphGetEdges(graph, from, to, data, count);
#else
  return cudaGraphGetEdges_v2(graph, from, to, data, count);
#endif
}

// Nodes of a graph, without the graphs within it, with an ordinary edge that leads to them.
int behind_ordinary_edges(cudaGraph_t graph) {
  std::size_t count = 0;
  CUDA_CHECK(edges_of(graph, nullptr, nullptr, nullptr, &count));
  std::vector<cudaGraphNode_t> from(count), to(count);
  std::vector<cudaGraphEdgeData> data(count);
  if (count > 0) CUDA_CHECK(edges_of(graph, from.data(), to.data(), data.data(), &count));
  std::set<cudaGraphNode_t> behind;
  for (std::size_t i = 0; i < count; ++i)
    if (data[i].type == cudaGraphDependencyTypeDefault) behind.insert(to[i]);
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

KernelResources resources_of(const Driver& driver, const SmLimits& limits, cudaGraphNode_t node) {
  CUDA_KERNEL_NODE_PARAMS params{};
  check(driver.node_params(node, &params), "cuGraphKernelNodeGetParams");
  CUfunction function = params.func;
  if (function == nullptr) check(driver.kernel_function(&function, params.kern), "cuKernelGetFunction");
  const auto attribute = [&](CUfunction_attribute which) {
    int value = 0;
    check(driver.function_attribute(&value, which, function), "cuFuncGetAttribute");
    return value;
  };

  KernelResources result;
  const char* name = nullptr;
  check(driver.function_name(&name, function), "cuFuncGetName");
  result.name = demangled(name);
  result.grid = {params.gridDimX, params.gridDimY, params.gridDimZ};
  result.block = {params.blockDimX, params.blockDimY, params.blockDimZ};
  result.dynamic_shared_bytes = params.sharedMemBytes;
  result.static_shared_bytes = static_cast<std::size_t>(attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
  result.registers = attribute(CU_FUNC_ATTRIBUTE_NUM_REGS);
  result.local_bytes = static_cast<std::size_t>(attribute(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES));

  check(driver.max_active_blocks(&result.blocks_per_sm, function, static_cast<int>(result.threads()),
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
  const Driver driver;
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
