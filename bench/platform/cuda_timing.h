// What a CUDA device times and records: graphs of launches, and events behind a gate; and calls of the CUDA runtime
// that must succeed.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "bench/platform/platform.h"

namespace noisefloor {

// Throws OutOfMemory, or DeviceError (lost where the context is), with the call's text and CUDA's; clears the error.
void check_cuda(cudaError_t error, const char* call);
#define CUDA_CHECK(call) ::noisefloor::check_cuda((call), #call)

class Event {
 public:
  Event() { CUDA_CHECK(cudaEventCreate(&event_)); }
  ~Event() { (void)cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// `repeats` launches, captured from the stream: on the host alone. Throws what the launch does, and DeviceError; the
// stream is then free again.
class CapturedGraph {
 public:
  CapturedGraph(cudaStream_t stream, const Launch& launch, int repeats);
  ~CapturedGraph() { destroy(); }
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;
  operator cudaGraph_t() const { return graph_; }
  std::size_t nodes() const;

 private:
  void destroy() noexcept;
  cudaGraph_t graph_ = nullptr;
};

// Visits a graph's nodes in their order, those of a graph within it behind the node that holds that.
void visit_nodes(cudaGraph_t graph, const std::function<void(cudaGraphNode_t, cudaGraphNodeType)>& visit);
cudaGraph_t graph_within(cudaGraphNode_t node);

// One that can be run. `captured` is no longer needed. Throws DeviceError.
class CudaGraph {
 public:
  explicit CudaGraph(const CapturedGraph& captured);
  CudaGraph(cudaStream_t stream, const Launch& launch, int repeats)
      : CudaGraph(CapturedGraph(stream, launch, repeats)) {}
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  void enqueue(cudaStream_t stream) const;
  void upload(cudaStream_t stream) const;  // to the device, in the stream's order, as a first enqueue() would
  std::size_t nodes() const { return nodes_; }

 private:
  std::size_t nodes_;
  cudaGraphExec_t executable_ = nullptr;
};

// What fills up chunks, by how many kernels are wanted: each is captured once, which takes as long as to make it
// runnable.
class Fillers {
 public:
  const CapturedGraph& of(std::size_t nodes, cudaStream_t stream);

 private:
  std::map<std::size_t, CapturedGraph> captured_;
};

// A graph in a chunk of its own. The driver keeps graphs in chunks of 2 MB, and from one chunk to the next the times of
// short launches step by up to two percent (docs/experiments/measuring/2026-11-25-places.md). A filler takes up what is
// left of a chunk, so that graphs kept side by side lie in as many chunks. It runs once: while a chunk is uploaded and
// has not run, edges of all graphs are long (docs/experiments/measuring/2026-11-29-uploads-make-edges-long.md).
class GraphInItsChunk {
 public:
  GraphInItsChunk(cudaStream_t stream, const Launch& launch, int repeats, Fillers& fillers);
  const CudaGraph& graph() const { return graph_; }

 private:
  CudaGraph graph_;
  std::optional<CudaGraph> filler_;
};

// Times with events. The stream waits at a gate until everything behind it is queued, so that no time of the host's is
// measured. Made while the device is the current one.
class GatedTimer {
 public:
  GatedTimer();
  ~GatedTimer();
  GatedTimer(const GatedTimer&) = delete;
  GatedTimer& operator=(const GatedTimer&) = delete;

  // `samples` times of `enqueue`, which is `repeats` launches, in microseconds a launch; before each, untimed,
  // `before`. Blocks. Throws DeviceError, also where a launch waits for the device, and what the two do.
  using Enqueue = std::function<void()>;
  std::vector<double> time(cudaStream_t stream, int samples, int repeats, const Enqueue& enqueue,
                           const Enqueue& before);

 private:
  void time_group(cudaStream_t stream, int samples, int repeats, const Enqueue& enqueue, const Enqueue& before,
                  std::vector<double>& times);
  int* gate_ = nullptr;  // open, timed out
  double last_us_ = 0;   // the last sample, whole: the next is taken to be as long, also in the next call
};

}  // namespace noisefloor
