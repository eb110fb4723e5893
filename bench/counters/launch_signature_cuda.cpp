#include "bench/counters/launch_signature.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "bench/counters/cupti_api.h"
#include "bench/counters/driver_calls.h"
#include "bench/counters/kernel_resources.h"
#include "bench/counters/machine_code.h"
#include "bench/platform/cuda_timing.h"
#include "bench/platform/fingerprint.h"

namespace noisefloor {
namespace {

// What decides how a kernel runs and is neither code nor argument.
constexpr CUfunction_attribute kOfFunction[] = {CU_FUNC_ATTRIBUTE_NUM_REGS, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
                                                CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
                                                CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT};
constexpr CUlaunchAttributeID kOfNode[] = {CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, CU_LAUNCH_ATTRIBUTE_COOPERATIVE};

bool is_address(std::uint64_t word) {
  constexpr std::uint64_t kLowest = std::uint64_t{1} << 32;  // below are numbers, and nobody's memory
  if (word < kLowest) return false;
  cudaPointerAttributes attributes{};
  const cudaError_t error = cudaPointerGetAttributes(&attributes, reinterpret_cast<const void*>(word));
  if (error != cudaSuccess) (void)cudaGetLastError();
  return error == cudaSuccess && attributes.type != cudaMemoryTypeUnregistered;
}

void add_argument(const void* argument, std::size_t bytes, Fingerprint& to) {
  std::vector<std::uint64_t> words(bytes / sizeof(std::uint64_t));
  std::memcpy(words.data(), argument, words.size() * sizeof(std::uint64_t));
  for (std::uint64_t& word : words)
    if (is_address(word)) word = 0;
  to.add(bytes).add(words.data(), words.size() * sizeof(std::uint64_t));
  const std::size_t whole = words.size() * sizeof(std::uint64_t);
  to.add(static_cast<const char*>(argument) + whole, bytes - whole);
}

void add_edges(cudaGraph_t graph, const std::map<cudaGraphNode_t, std::size_t>& places, Fingerprint& to) {
  std::vector<std::tuple<std::size_t, std::size_t, int>> edges;
  for (const GraphEdge& edge : edges_of(graph))
    edges.emplace_back(places.at(edge.from), places.at(edge.to), edge.data.type);
  std::ranges::sort(edges);
  for (const auto& [from, behind, type] : edges) to.add(from).add(behind).add(type);
}

class CuptiCodeWatch final : public CodeWatch {
 public:
  CuptiCodeWatch() {
    check_cupti(cupti::api().subscribe(&subscriber_, on_callback, this), "cuptiSubscribe");
    const CUptiResult enabled =
        cupti::api().enable_callback(1, subscriber_, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_MODULE_LOADED);
    if (enabled == CUPTI_SUCCESS) return;
    (void)cupti::api().unsubscribe(subscriber_);
    check_cupti(enabled, "cuptiEnableCallback");
  }
  ~CuptiCodeWatch() override { (void)cupti::api().unsubscribe(subscriber_); }
  CuptiCodeWatch(const CuptiCodeWatch&) = delete;

  std::string signature(Stream stream, const std::function<Status()>& enqueue) override {
    if (!driver_) driver_.emplace();
    const CapturedGraph graph(stream, enqueue, 2);
    Fingerprint found;
    std::map<cudaGraphNode_t, std::size_t> places;
    std::vector<cudaGraph_t> graphs = {graph};
    visit_nodes(graph, [&](cudaGraphNode_t node, cudaGraphNodeType type) {
      places.emplace(node, places.size());
      found.add(type);
      if (type == cudaGraphNodeTypeKernel) add_kernel(node, found);
      if (type == cudaGraphNodeTypeMemset) add_memset(node, found);
      if (type == cudaGraphNodeTypeMemcpy) add_copy(node, found);
      if (type == cudaGraphNodeTypeGraph) graphs.push_back(graph_within(node));
    });
    for (const cudaGraph_t one : graphs) add_edges(one, places, found);
    return found.text();
  }

 private:
  // On whichever thread loads a module; it cannot throw through the driver.
  static void CUPTIAPI on_callback(void* watch, CUpti_CallbackDomain, CUpti_CallbackId, const void* data) noexcept {
    auto& self = *static_cast<CuptiCodeWatch*>(watch);
    const auto& resource = *static_cast<const CUpti_ResourceData*>(data);
    const auto& module = *static_cast<const CUpti_ModuleResourceData*>(resource.resourceDescriptor);
    const std::lock_guard lock(self.mutex_);
    try {
      const std::span bytes(reinterpret_cast<const std::byte*>(module.pCubin), module.cubinSize);
      for (const auto& [name, code] : machine_code_of(bytes)) self.codes_[name].insert(code);
    } catch (const std::exception& error) {  // its kernels are then not known
      self.damaged_ = error.what();
    }
  }

  void add_kernel(cudaGraphNode_t node, Fingerprint& to) {
    CUDA_KERNEL_NODE_PARAMS params{};
    const CUfunction function = driver_->function_of(node, params);
    add_code(function, to);
    for (const unsigned extent : {params.gridDimX, params.gridDimY, params.gridDimZ, params.blockDimX, params.blockDimY,
                                  params.blockDimZ, params.sharedMemBytes})
      to.add(extent);
    for (const CUfunction_attribute which : kOfFunction) {
      int value = 0;
      check_driver(driver_->function_attribute(&value, which, function), "cuFuncGetAttribute");
      to.add(value);
    }
    for (const CUlaunchAttributeID which : kOfNode) {
      CUlaunchAttributeValue value{};
      check_driver(driver_->node_attribute(node, which, &value), "cuGraphKernelNodeGetAttribute");
      to.add(&value, sizeof value);
    }
    std::size_t offset = 0, bytes = 0;
    for (std::size_t i = 0; driver_->parameter(function, i, &offset, &bytes) == CUDA_SUCCESS; ++i) {
      if (params.kernelParams == nullptr) return add_packed(params.extra, to);
      add_argument(params.kernelParams[i], bytes, to);
    }
  }

  // All arguments in one buffer, as some libraries launch.
  static void add_packed(void* const* extra, Fingerprint& to) {
    const void* buffer = nullptr;
    std::size_t bytes = 0;
    for (; extra != nullptr && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
      if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = extra[1];
      if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *static_cast<const std::size_t*>(extra[1]);
    }
    if (buffer == nullptr || bytes == 0) throw std::runtime_error("a kernel's arguments are not to be had");
    add_argument(buffer, bytes, to);
  }

  // Of a name that several modules have, all.
  void add_code(CUfunction function, Fingerprint& to) {
    const char* name = nullptr;
    check_driver(driver_->function_name(&name, function), "cuFuncGetName");
    const std::lock_guard lock(mutex_);
    const auto known = codes_.find(name);
    if (known == codes_.end())
      throw std::runtime_error(fmt::format("the code of {} is not known{}{}", short_kernel_name(demangled(name)),
                                           damaged_.empty() ? ": it was loaded before signatures were asked for" : ": ",
                                           damaged_));
    for (const std::uint64_t code : known->second) to.add(code);
  }

  static void add_memset(cudaGraphNode_t node, Fingerprint& to) {
    cudaMemsetParams params{};
    CUDA_CHECK(cudaGraphMemsetNodeGetParams(node, &params));
    to.add(params.value).add(params.elementSize).add(params.width).add(params.height);
  }

  static void add_copy(cudaGraphNode_t node, Fingerprint& to) {
    cudaMemcpy3DParms params{};
    CUDA_CHECK(cudaGraphMemcpyNodeGetParams(node, &params));
    to.add(params.extent.width).add(params.extent.height).add(params.extent.depth).add(params.kind);
  }

  OnlyOne<CodeWatch> only_one_{"signatures: another CodeWatch of this process is still alive"};
  std::optional<DriverCalls> driver_;  // made behind the subscription: it may make the context, which may load modules
  CUpti_SubscriberHandle subscriber_ = nullptr;
  std::mutex mutex_;
  std::map<std::string, std::set<std::uint64_t>, std::less<>> codes_;  // by mangled name
  std::string damaged_;
};

}  // namespace

std::unique_ptr<CodeWatch> watch_code() {
  return std::make_unique<CuptiCodeWatch>();
}

}  // namespace noisefloor
