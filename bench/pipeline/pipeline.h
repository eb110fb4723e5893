// From a request to pictures: a network, what tells it what to draw, its sampling loop and its decoder.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "bench/pipeline/conditioning.h"
#include "bench/pipeline/decoding.h"
#include "bench/pipeline/drawing.h"
#include "bench/pipeline/sampling.h"

namespace noisefloor::pipeline {

// What a pipeline is made of, before anything is measured or on the device: what cannot be is refused here.
struct PipelineModels {
  // `calls`: of the longest loop, where that is not the request's. Throws InvalidInput, DeviceError.
  PipelineModels(const SampleRequest& request, Device device, std::int64_t calls = 0);

  SampleRequest request;
  std::unique_ptr<Conditioning> conditioning;  // of networks that take one
  Model model;
  std::optional<Decoding> decoding;  // of networks that draw latents
  Drawing drawing;

  // Tells a running model and its sampler what images [first, first + batch) are of.
  void tell(const RunningModel& running, Sampler& sampler, std::int64_t first) const;
};

class Pipeline {
 public:
  // Checks all weights, plans, and allocates what draw() will need; a decoder's memory is given back for now. Throws as
  // RunningModel does.
  Pipeline(const SampleRequest& request, Device device);

  // So many steps of images [first, first + images) are taken.
  struct Step {
    std::int64_t first, images;
    std::size_t taken;
  };
  using OnStep = std::function<void(const Step&)>;
  // All images of the request; `on_step` is told twice a second or more often. Latents that cannot be decoded are
  // handed to `rescue`. Throws std::runtime_error where numbers are not finite, and what RunningModel does.
  Images draw(const OnStep& on_step = {}, const Decoding::Rescue& rescue = {});

  // For measuring the first step, again and again, before anything is drawn.
  void prepare_first_step();
  Status enqueue_first_step() { return loops_->asked->enqueue(0, 1); }

  const PipelineModels& models() const { return models_; }
  RunningModel& running() { return loops_->running; }
  std::size_t bytes() const { return bytes_; }  // of device memory, at most

 private:
  // The network and its loops: as asked and, where calls are not whole in that, with all of them whole.
  struct Loops {
    explicit Loops(PipelineModels& models);
    RunningModel running;
    std::optional<Sampler> asked, whole;
  };
  std::vector<int> labels(std::int64_t first) const;  // of a batch
  void draw_batch(std::int64_t first, Images& images);
  ShallowCost cost_of_shallow_calls();

  PipelineModels models_;
  std::unique_ptr<Loops> loops_;
  std::size_t bytes_ = 0;
};

}  // namespace noisefloor::pipeline
