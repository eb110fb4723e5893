#include "bench/platform/cuda_timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "bench/platform/cuda_kernels.h"

namespace noisefloor {
namespace {

constexpr unsigned long long kGateTimeoutNs = 5'000'000'000ull;
// Samples queued behind one gate. In longer queues all but the last few come out longer, and by an amount that differs
// from process to process (docs/experiments/measuring/2026-11-21-gate-tried.md).
constexpr int kQueued = 4;
// Launches so long are timed one by one. Queueing them gains nothing, and a second launch of the libraries' graph of
// SDXL waits in the host until the first has run; why is open (docs/experiments/runs/2026-11-26-nvidia-h100.md).
constexpr double kAloneUs = 10'000;
constexpr std::size_t kChunkNodes = 650;  // a chunk of 2 MB has room for 600 to 650 kernels

// After one of these every later call of the process fails too.
bool context_is_lost(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
      return true;
    default:
      return false;
  }
}

// A kernel, or a copy: what a launch that does nothing has not.
bool has_work(cudaGraph_t graph) {
  bool found = false;
  visit_nodes(graph, [&](cudaGraphNode_t, cudaGraphNodeType type) {
    found = found || type == cudaGraphNodeTypeKernel || type == cudaGraphNodeTypeMemcpy;
  });
  return found;
}

// What took the host longest, to be told where it was too long.
struct LongestStep {
  std::string name = "nothing";
  double seconds = -1;
  void take(std::string step, const GatedTimer::Enqueue& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (took > seconds) name = std::move(step), seconds = took;
  }
};

}  // namespace

std::string cuda_error_text(int error) {
  const auto code = static_cast<cudaError_t>(error);
  return fmt::format("{} ({})", cudaGetErrorString(code), cudaGetErrorName(code));
}

void check_cuda(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();
  if (error == cudaErrorMemoryAllocation) throw OutOfMemory(fmt::format("{}: out of device memory", call));
  throw DeviceError(fmt::format("{}: {}", call, cuda_error_text(error)), context_is_lost(error));
}

cudaGraph_t graph_within(cudaGraphNode_t node) {
  cudaGraph_t graph = nullptr;
  CUDA_CHECK(cudaGraphChildGraphNodeGetGraph(node, &graph));
  return graph;
}

void visit_nodes(cudaGraph_t graph, const std::function<void(cudaGraphNode_t, cudaGraphNodeType)>& visit) {
  std::size_t count = 0;
  CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  if (count > 0) CUDA_CHECK(cudaGraphGetNodes(graph, nodes.data(), &count));
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    CUDA_CHECK(cudaGraphNodeGetType(node, &type));
    visit(node, type);
    if (type == cudaGraphNodeTypeGraph) visit_nodes(graph_within(node), visit);
  }
}

CapturedGraph::CapturedGraph(cudaStream_t stream, const Launch& launch, int repeats) {
  CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  Status status = success();
  try {
    for (int i = 0; i < repeats && status.ok(); ++i) status = launch();
  } catch (...) {  // a stream that is still captured would spoil all that follows
    (void)cudaStreamEndCapture(stream, &graph_);
    (void)cudaGetLastError();
    destroy();
    throw;
  }
  const cudaError_t ended = cudaStreamEndCapture(stream, &graph_);
  try {
    throw_if_failed(status);
    check_cuda(ended, "cudaStreamEndCapture (does the launch allocate or synchronise?)");
    if (!has_work(graph_)) throw std::runtime_error("its launch records no kernel in a CUDA graph");
  } catch (...) {
    (void)cudaGetLastError();
    destroy();
    throw;
  }
}

std::size_t CapturedGraph::nodes() const {
  std::size_t count = 0;
  CUDA_CHECK(cudaGraphGetNodes(graph_, nullptr, &count));
  return count;
}

void CapturedGraph::destroy() noexcept {
  if (graph_ != nullptr) (void)cudaGraphDestroy(graph_);
  graph_ = nullptr;
}

CudaGraph::CudaGraph(const CapturedGraph& captured) : nodes_(captured.nodes()) {
  CUDA_CHECK(cudaGraphInstantiate(&executable_, captured, 0));
}

CudaGraph::~CudaGraph() {
  if (executable_ != nullptr) (void)cudaGraphExecDestroy(executable_);
}

void CudaGraph::enqueue(cudaStream_t stream) const {
  CUDA_CHECK(cudaGraphLaunch(executable_, stream));
}

void CudaGraph::upload(cudaStream_t stream) const {
  CUDA_CHECK(cudaGraphUpload(executable_, stream));
}

const CapturedGraph& Fillers::of(std::size_t nodes, cudaStream_t stream) {
  const auto nothing = [&] {
    CUDA_CHECK(harness::do_nothing(stream));
    return success();
  };
  if (const auto found = captured_.find(nodes); found != captured_.end()) return found->second;
  return captured_
      .emplace(std::piecewise_construct, std::forward_as_tuple(nodes),
               std::forward_as_tuple(stream, nothing, static_cast<int>(nodes)))
      .first->second;
}

GraphInItsChunk::GraphInItsChunk(cudaStream_t stream, const Launch& launch, int repeats, Fillers& fillers)
    : graph_(stream, launch, repeats) {
  const std::size_t nodes = graph_.nodes();
  graph_.upload(stream);
  if (nodes >= kChunkNodes) return;
  filler_.emplace(fillers.of(kChunkNodes - nodes, stream));
  filler_->enqueue(stream);
}

GatedTimer::GatedTimer() {
  CUDA_CHECK(cudaMallocHost(reinterpret_cast<void**>(&gate_), 2 * sizeof(int)));
}

GatedTimer::~GatedTimer() {
  (void)cudaFreeHost(gate_);
}

std::vector<double> GatedTimer::time(cudaStream_t stream, int samples, int repeats, const Enqueue& enqueue,
                                     const Enqueue& before) {
  std::vector<double> times;
  while (std::ssize(times) < samples) {
    const int left = samples - static_cast<int>(times.size());
    time_group(stream, last_us_ < kAloneUs ? std::min(kQueued, left) : 1, repeats, enqueue, before, times);
    last_us_ = times.back() * repeats;
  }
  return times;
}

void GatedTimer::time_group(cudaStream_t stream, int samples, int repeats, const Enqueue& enqueue,
                            const Enqueue& before, std::vector<double>& times) {
  volatile int* gate = gate_;
  gate[0] = 0;
  gate[1] = 0;
  std::vector<Event> begin(static_cast<std::size_t>(samples)), end(static_cast<std::size_t>(samples));
  LongestStep longest;
  CUDA_CHECK(harness::wait_for_host(gate_, gate_ + 1, kGateTimeoutNs, stream));
  try {
    for (std::size_t i = 0; i < begin.size(); ++i) {
      longest.take(fmt::format("what comes before launch {} of {}", i + 1, samples), before);
      CUDA_CHECK(cudaEventRecord(begin[i], stream));
      longest.take(fmt::format("launch {} of {}", i + 1, samples), enqueue);
      CUDA_CHECK(cudaEventRecord(end[i], stream));
    }
  } catch (...) {
    gate[0] = 1;
    (void)cudaDeviceSynchronize();
    throw;
  }
  gate[0] = 1;
  CUDA_CHECK(cudaDeviceSynchronize());
  CUDA_CHECK(cudaGetLastError());
  if (gate[1] != 0)
    throw DeviceError(
        fmt::format("the queue did not fill within 5 s of the gate closing, as if a launch waited for the "
                    "device: {} took {:.1f} s",
                    longest.name, longest.seconds),
        false);
  for (std::size_t i = 0; i < begin.size(); ++i) {
    float milliseconds = 0;
    CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin[i], end[i]));
    times.push_back(1e3 * static_cast<double>(milliseconds) / repeats);
  }
}

}  // namespace noisefloor
