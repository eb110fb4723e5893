// What the driver says of a graph's kernels. For the *_cuda.cpp files of this folder.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <vector>

namespace noisefloor {

// The driver's calls, asked through the runtime, so that libcuda need not be linked. Since CUDA 12.4 all of them are
// there. Throws std::runtime_error naming the one that is not.
struct DriverCalls {
  decltype(&cuGraphKernelNodeGetParams) node_params;
  decltype(&cuGraphKernelNodeGetAttribute) node_attribute;
  decltype(&cuKernelGetFunction) kernel_function;
  decltype(&cuFuncGetAttribute) function_attribute;
  decltype(&cuFuncGetName) function_name;
  decltype(&cuFuncGetParamInfo) parameter;
  decltype(&cuOccupancyMaxActiveBlocksPerMultiprocessor) max_active_blocks;

  DriverCalls();
  CUfunction function_of(cudaGraphNode_t kernel, CUDA_KERNEL_NODE_PARAMS& params) const;
};

void check_driver(CUresult result, const char* call);  // throws std::runtime_error

struct GraphEdge {
  cudaGraphNode_t from, to;
  cudaGraphEdgeData data;
};
// Of a graph's own nodes, without those of graphs within it. Throws DeviceError.
std::vector<GraphEdge> edges_of(cudaGraph_t graph);

}  // namespace noisefloor
