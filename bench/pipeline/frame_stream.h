// Pictures one from the other: each begins as the one before, with noise of a level, and takes the last steps of a
// schedule to its own. Source of beginning on the way: Meng et al., "SDEdit" (ICLR 2022).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bench/pipeline/sampling.h"

namespace noisefloor::pipeline {

// Of one network, and a decoder where it draws latents. What a frame takes is one recording (on a GPU: one CUDA graph)
// but for the noise, which is its own.
class FrameStream {
 public:
  // `sampler` takes the steps of a frame by `network`; all outlive the stream. `blend`, 0 to 1: how much of the picture
  // before gives way to noise of its own deviation; 0 keeps it whole, 1 begins anew. Throws InvalidInput for another.
  FrameStream(Platform& platform, Executor& network, Sampler& sampler, Executor* decoder, double blend,
              std::uint64_t seed);
  static std::size_t bytes(const Network& network);  // of device memory, beside its sampler's
  FrameStream(const FrameStream&) = delete;          // its recording knows where it is
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
  Executor* network_;
  Sampler* sampler_;
  Executor* decoder_;
  double blend_;
  std::uint64_t seed_;
  std::int64_t frame_ = 0;
  std::unique_ptr<Ready> mixing_;
  Buffer noise_, before_, begin_levels_, end_levels_;
  std::unique_ptr<Recording> recording_;
  std::vector<float> picture_;
};

}  // namespace noisefloor::pipeline
