// The networks that pictures are made with: functions from a batch size to a graph.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kernels/sampler_step/schedule.h"
#include "networks/graph.h"

namespace noisefloor::pipeline {

// What a denoising call takes and gives. Images are channels-last in the graph's inputs and output.
struct Network {
  // noise_prediction: x and training timesteps in, the noise (and what was learnt of its variance) out. denoiser: x =
  // x0 + sigma noise and sigma in, x0 out. Samplers work on x0 + sigma noise throughout; built for `sampling`, a noise
  // predictor takes that too, and scales it to unit variance itself.
  enum class Form { noise_prediction, denoiser };

  std::string name;
  Form form = Form::denoiser;
  std::int64_t batch = 1, size = 0, channels = 0;                    // of the images
  std::int64_t out_channels = 0;                                     // of the output
  std::int64_t classes = 0;                                          // 0: not conditional
  sampler_step::Schedule schedule = sampler_step::Schedule::karras;  // that it was trained with, or (karras) any
  Graph graph;
  ValueId x = 0;                     // fp32 [batch, size, size, channels]
  std::optional<ValueId> timesteps;  // fp32 [batch]; of noise predictors
  std::optional<ValueId> sigma;      // fp32 [batch]; of denoisers, and of whatever is built for sampling
  ValueId labels = 0;                // one-hot [batch, classes] in the network's dtype; only with classes
  ValueId output = 0;                // fp32 [batch, size, size, out_channels]

  std::int64_t pixels() const { return size * size; }
};

struct BuildOptions {
  std::int64_t batch = 1;
  DType dtype = DType::bf16;
  bool conditional = true;
  // For a sampler: x is x0 + sigma noise, and the output is only what a sampler needs, without ADM's learnt variances.
  bool sampling = false;
  // Sampling with classifier-free guidance: x of `batch` images goes in twice, and sigma, labels and output are of
  // 2 batch, without condition first.
  bool guided = false;
};

struct NetworkInfo {
  const char* name;
  const char* description;
  std::int64_t classes;  // when conditional
  Network (*build)(const BuildOptions&);
};

std::span<const NetworkInfo> networks();
const NetworkInfo& require_network(std::string_view name);  // throws InvalidInput with "did you mean"

// Builds it; throws InvalidInput saying how many images it takes at a time where options.batch is more.
Network build_or_say_limit(const NetworkInfo& info, const BuildOptions& options);

Network build_adm64(const BuildOptions& options);
Network build_edm_cifar(const BuildOptions& options);
Network build_digits(const BuildOptions& options);

}  // namespace noisefloor::pipeline
