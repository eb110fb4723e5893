// Pictures one from the other: each begins as the one before, with noise of a level, and takes the last steps of a
// schedule to its own. Source of beginning on the way: Meng et al., "SDEdit" (ICLR 2022).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "bench/pipeline/pipeline.h"

namespace noisefloor::pipeline {

// Of one network, and a decoder where it draws latents. What a frame takes is one recording (on a GPU: one CUDA graph)
// but for the noise, which is its own.
class FrameStream {
 public:
  // `options` is the loop of a frame; its seed is that of the frames' noise. Networks outlive the stream. `blend`, 0 to
  // 1: how much of the picture before gives way to noise of its own deviation; 0 keeps it whole, 1 begins anew. Throws
  // InvalidInput for another.
  FrameStream(Platform& platform, Executor& network, const SamplingOptions& options, Executor* decoder, double blend);
  static std::size_t bytes(const Network& network, const SamplingOptions& options);  // of device memory
  FrameStream(const FrameStream&) = delete;                                          // its recording knows where it is
  FrameStream& operator=(const FrameStream&) = delete;

  // The picture before the first frame, x0 as Sampler::run() gives it. Frames are numbered anew: the same pictures
  // follow the same one.
  void begin(std::span<const int> labels, const std::vector<float>& x0);
  // The next picture [batch, height, width, channels], decoded where there is a decoder; blocks until it is here.
  const std::vector<float>& next();
  // What that was decoded from.
  std::vector<float> latents() const;

 private:
  void mix(const void* x, const Buffer& levels, void* into);

  Platform* platform_;
  Sampler sampler_;
  SolverLaunches mixing_;
  Executor* decoder_;
  double blend_;
  std::uint64_t seed_;
  std::int64_t frame_ = 0;
  Buffer noise_, before_, begin_levels_, end_levels_;
  std::unique_ptr<Recording> recording_;
  std::vector<float> picture_;
};

struct StreamRequest {
  // A frame takes the last `steps` of a schedule of as many as make them `strength` of it, in whole steps. Throws
  // InvalidInput where the network draws videos, or steps draw noise.
  StreamRequest(const SampleArguments& asked, int steps, double strength, double blend);

  SampleRequest first;    // picture
  SamplingOptions frame;  // of the loop of each
  std::vector<StepPlan> steps;
  double blend;
};

// Of frames that were drawn.
struct FrameTimes {
  std::vector<double> ms;
  std::vector<double> change;  // mean |difference| from the frame before, of pictures from -1 to 1; none of the first
  std::vector<float> last;     // frame
};

class StreamPipeline {
 public:
  // Checks, plans and allocates as Pipeline does. A decoder stays on the device.
  StreamPipeline(const StreamRequest& request, Device device);

  const PipelineModels& models() const { return models_; }
  // So many frames behind the first picture, each timed from its noise to its picture on the host, behind one that is
  // not. `all_whole`: by a loop whose calls are all whole. Throws std::runtime_error where numbers are not finite.
  FrameTimes draw(std::int64_t count, bool all_whole, const std::function<void(const std::vector<float>&)>& seen = {});

 private:
  PipelineModels models_;
  std::unique_ptr<RunningModel> decoder_, network_;
  std::optional<Sampler> first_;
  std::optional<FrameStream> asked_, whole_;
  std::vector<float> first_picture_;
};

}  // namespace noisefloor::pipeline
