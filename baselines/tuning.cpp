#include "baselines/tuning.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "kernels/core/cuda_status.h"

namespace noisefloor {
namespace {

constexpr int kFirstSamples = 3;
constexpr int kFinalSamples = 15;
constexpr std::size_t kFinalists = 8;

// The events and the buffer that sampling needs, freed on every path out.
class Sampler {
 public:
  explicit Sampler(const LaunchContext& context) : context_(context) {}
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;
  ~Sampler() {
    for (cudaEvent_t event : events_) static_cast<void>(cudaEventDestroy(event));
    static_cast<void>(cudaFree(buffer_));
  }

  Status open() {
    bytes_ = std::max<std::size_t>(context_.device->l2_bytes * 5 / 2, std::size_t{1} << 20);
    NOISEFLOOR_CUDA(cudaMalloc(&buffer_, bytes_ + sizeof(int)));
    NOISEFLOOR_CUDA(cudaMemsetAsync(buffer_, 0, bytes_ + sizeof(int), context_.stream));
    for (int i = 0; i < 2 * kFinalSamples; ++i) {
      cudaEvent_t event = nullptr;
      NOISEFLOOR_CUDA(cudaEventCreate(&event));
      events_.push_back(event);
    }
    return success();
  }

  // Sets `median`, or leaves it negative when the library refuses the launch. An error means that the device failed.
  Status sample(const std::function<Status()>& launch, int samples, double& median) {
    median = -1;
    for (int i = -1; i < samples; ++i) {  // the first is a warm-up: it loads the kernel
      if (const Status status = enqueue_eviction(buffer_, bytes_, static_cast<char*>(buffer_) + bytes_, context_);
          !status.ok())
        return status;
      if (i >= 0) NOISEFLOOR_CUDA(cudaEventRecord(events_[2 * static_cast<std::size_t>(i)], context_.stream));
      if (!launch().ok()) {
        static_cast<void>(cudaGetLastError());  // a refusal; a failed device shows at the synchronisation
        NOISEFLOOR_CUDA(cudaStreamSynchronize(context_.stream));
        return success();
      }
      if (i >= 0) NOISEFLOOR_CUDA(cudaEventRecord(events_[2 * static_cast<std::size_t>(i) + 1], context_.stream));
    }
    NOISEFLOOR_CUDA(cudaStreamSynchronize(context_.stream));
    std::vector<float> times(static_cast<std::size_t>(samples));
    for (std::size_t i = 0; i < times.size(); ++i)
      NOISEFLOOR_CUDA(cudaEventElapsedTime(&times[i], events_[2 * i], events_[2 * i + 1]));
    std::nth_element(times.begin(), times.begin() + samples / 2, times.end());
    median = 1e3 * static_cast<double>(times[times.size() / 2]);
    return success();
  }

 private:
  const LaunchContext& context_;
  void* buffer_ = nullptr;
  std::size_t bytes_ = 0;
  std::vector<cudaEvent_t> events_;
};

}  // namespace

Tuned rank_candidates(int count, const std::function<Status(int)>& launch, const LaunchContext& context,
                      double budget_seconds) {
  const auto start = std::chrono::steady_clock::now();
  const auto faster = [](const Timed& a, const Timed& b) { return a.microseconds < b.microseconds; };
  Tuned tuned;
  Sampler sampler(context);
  if (tuned.status = sampler.open(); !tuned.status.ok()) return tuned;

  std::vector<Timed> first;
  for (int i = 0; i < count; ++i) {
    double median = -1;
    tuned.status = sampler.sample([&] { return launch(i); }, kFirstSamples, median);
    if (!tuned.status.ok()) return tuned;
    if (median > 0) first.push_back({median, i});
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (elapsed.count() > budget_seconds && !first.empty()) break;
  }
  tuned.ran = static_cast<int>(first.size());
  std::sort(first.begin(), first.end(), faster);
  first.resize(std::min(first.size(), kFinalists));

  for (const Timed& finalist : first) {
    double median = -1;
    tuned.status = sampler.sample([&] { return launch(finalist.index); }, kFinalSamples, median);
    if (!tuned.status.ok()) return tuned;
    if (median > 0) tuned.ranking.push_back({median, finalist.index});
  }
  std::sort(tuned.ranking.begin(), tuned.ranking.end(), faster);
  if (tuned.ranking.empty())
    tuned.status = failure(StatusCode::unsupported_problem, "the library refused every algorithm that it offered");
  return tuned;
}

}  // namespace noisefloor
