// The networks that pictures are made with: functions from what is asked (a batch, a size) to a graph. A network's row
// stands with its builder and holds whatever is particular to it; nothing else names a network.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/sampler_step/sampler_step.h"
#include "networks/graph.h"

namespace noisefloor::networks {

// A picture, or a video of frames, channels-last.
struct ImageShape {
  std::int64_t height = 0, width = 0, channels = 0, frames = 1;
  std::int64_t pixels() const { return height * width; }  // of a frame
  std::int64_t elements() const { return frames * pixels() * channels; }
};

// A tensor that a call takes or gives; its dtype is that of its value in the graph.
struct NetworkTensor {
  enum class Kind {
    image,         // x0 + sigma noise, what the network makes of it, or behind x latents of a picture
    timesteps,     // of training, 0 to range - 1
    sigma,         // noise level, above 0
    labels,        // one-hot over `range` classes
    text,          // as its encoder left it: [n, tokens, width]
    conditioning,  // any other numbers, normal as far as timing and verification are concerned
  };
  const char* name;  // in files, rows and messages; of static storage
  Kind kind;
  ValueId value = 0;
  std::vector<std::int64_t> shape;
  std::int64_t range = 0;
  bool of_all_calls = false;  // levels of all calls of a loop, one behind the other
};

// Images, text and conditioning are drawn; all else is a function of its place in the batch (fill_for_timing).
bool drawn(NetworkTensor::Kind kind);
// Noise levels spread over the range that a network is asked at, and a label or token for each place. In `dtype`.
void fill_for_timing(const NetworkTensor& input, DType dtype, void* data);

struct NetworkInfo;

// What a denoising call takes and gives. Samplers work on x0 + sigma noise throughout; built for `sampling`, a
// predictor of noise takes that too, and scales it to unit variance itself.
struct Network {
  const NetworkInfo* info = nullptr;
  std::int64_t batch = 1;  // images
  std::int64_t calls = 1;  // the same, or twice as many with guidance: images of a call's output
  ImageShape image;
  std::int64_t classes = 0;  // 0: not conditional
  bool sampling = false;     // it is called in a loop, in which latents and levels alone change (lifetimes.h)
  // Of how many calls it embeds the levels at once, before the loop begins. 0: each call embeds its own.
  std::int64_t hoisted_levels = 0;
  Graph graph;
  std::vector<NetworkTensor> inputs, outputs;
  // What the decoder's blocks get from below, beside their skips: deepest first. Empty without a decoder.
  std::vector<ValueId> below;
  std::optional<ValueId> kept;  // that one of `below` which calls of a loop can take from an earlier one

  const char* name() const;
  sampler_step::Prediction prediction() const;
  // For builders.
  ValueId take(const char* name, NetworkTensor::Kind kind, std::vector<std::int64_t> shape, DType dtype,
               std::int64_t range = 0, bool of_all_calls = false);
  // Levels that are embedded, with their labels: those of a call behind those of the call before.
  std::int64_t embedded() const { return hoisted_levels > 0 ? hoisted_levels * calls : calls; }
  void give(const char* name, ValueId value, std::vector<std::int64_t> shape);
  // The first input of a kind; null where there is none.
  const NetworkTensor* find(NetworkTensor::Kind kind) const;
  const NetworkTensor& require(NetworkTensor::Kind kind) const;
  // What tells the noise of x: timesteps, or sigma where it takes none.
  const NetworkTensor& level() const;
  std::vector<ValueId> output_values() const;

  ValueId x() const { return require(NetworkTensor::Kind::image).value; }
  ValueId labels() const { return require(NetworkTensor::Kind::labels).value; }
  ValueId output() const { return outputs.front().value; }
  std::int64_t out_channels() const { return outputs.front().shape.back(); }
};

// One label an image, as the network's labels hold them: a guided network gets them behind a half without, one with
// levels ahead again for each. Throws InvalidInput on one out of range.
std::vector<char> one_hot(const Network& network, std::span<const int> labels);

// What a network is built for. 0: what it was trained on.
struct Sizes {
  std::int64_t height = 0, width = 0, frames = 0, tokens = 0;
};
struct SizeField {
  const char *name, *meaning;  // in problems, options and messages
  std::int64_t Sizes::*size;
  std::int64_t most;  // that can be asked for at all
};
std::span<const SizeField> size_fields();

struct BuildOptions {
  std::int64_t batch = 1;
  DType dtype = DType::bf16;
  bool conditional = true;
  // For a sampler: x is x0 + sigma noise, and the output is only what a sampler needs, without learnt variances.
  bool sampling = false;
  // Sampling with classifier-free guidance: x of `batch` images goes in twice, and sigma, labels and output are of
  // 2 batch, without condition first.
  bool guided = false;
  // Sampling: how many of the decoder's last blocks a call computes that takes what is below them from an earlier one
  // (Ma et al., "DeepCache", CVPR 2024). 0: none is asked for.
  std::int64_t shallow_blocks = 0;
  // Sampling: of how many calls the levels are known before the loop begins. What depends on them, and on labels, is
  // computed for all of them at once then, by a network that can, where it takes at most kMostHoistedBytes.
  std::int64_t hoisted_levels = 0;
  // To be listed and compared with: what the published network computes, where ours computes once what all blocks read
  // and leaves out what a rule lets it. Its inputs are the original's: svd's are scaled already.
  bool original = false;
  bool old_names = false;  // of modules, as the network's older checkpoints have them
  // Fusions (rewrite.h). What pays by measurement alone, norms in convolutions, is the plan's.
  bool merge_products = true;
  bool fold_skips = false;  // and averages into the norms before them
  Sizes sizes = {};
};

// What the calls of a loop may read of levels that were embedded ahead. Above it each call embeds its own: it would be
// memory for a gain of 2 % at most. In bf16 it holds 939 calls of one picture of adm64.
constexpr std::int64_t kMostHoistedBytes = std::int64_t{64} << 20;

// An input that does not change in a sampling loop, and what of a file it is made of, a row a picture. Under guidance
// the half without condition takes another tensor, the same, or (empty) zeros.
struct Conditioned {
  const char* input;
  const char* tensor;
  const char* without;
};

// A network's row, or (a copy) that of a checkpoint whose folder says otherwise.
struct NetworkInfo {
  const char* name;
  const char* description;
  sampler_step::Prediction prediction = sampler_step::Prediction::noise;
  ImageShape image;  // that it was trained on
  // Of every height and width that it takes, as far as it downsamples. 0: only its own, where a weight's shape depends
  // on them (a table of positions).
  std::int64_t divisor = 0;
  // A decoder, which takes latents and no noise level, makes pictures so many times as high and wide. 0: it denoises.
  std::int64_t enlarges = 0;
  std::int64_t most_frames = 1;  // of a video
  std::int64_t tokens = 0;       // of text; 0: it takes none
  std::int64_t most_tokens = 0;
  std::int64_t classes = 0;                     // when conditional; 0: never
  const char* label_weight = "";                // a checkpoint that has it is conditional
  const char* old_weight = "";                  // a checkpoint that has it has the old names
  std::vector<std::string_view> let_pass = {};  // of checkpoints, not weights of it: ends of names, or "module."
  const char* folder = "unet";                  // of its checkpoint, among a diffusers pipeline's
  const char* no_fp16 = "";                     // why it cannot be run in fp16; empty: it can
  double rounding = 2e-2;                       // relative L2 error that bf16 may leave in its output
  std::int64_t parameters = 0;                  // of the original; its let-pass tensors apart
  bool shipped = false;                         // its weights come with noisefloor
  // Whose published checkpoints were never trained without a label, which guidance compares with.
  const char* unguided_checkpoints = "";
  sampler_step::Schedule schedule = sampler_step::Schedule::karras;  // that it was trained with, or (karras) any
  std::vector<double> alphas = {};  // alpha_bar of its training timesteps, where they are not the schedule's own
  sampler_step::Solver solver = sampler_step::Solver::edm_heun;  // of a picture, where nobody says
  int steps = 18;
  sampler_step::Spacing spacing = sampler_step::Spacing::linspace;
  int offset = 0;           // of Spacing::leading
  bool ends_noisy = false;  // at the level of timestep 0, of solvers that end as checkpoints were trained
  double sigma_min = 0.002, sigma_max = 80;  // karras: the levels that it was trained at
  double guidance = 0;
  double first_guidance = 0;  // of a video's first frame, growing to that of the last; 0: the same for all
  std::vector<Conditioned> conditioning = {};
  const char* decoder = "";  // the network that makes pictures of what it draws, which are latents
  double latent_scale = 1;   // of a decoder: that its latents were multiplied by
  // Of diffusers' networks: settings of a folder's config.json that tell what is computed, a JSON object with their
  // values of the network that is built. An element null stands for any.
  std::string configuration = {};
  std::vector<std::int64_t> swept = {};  // batches at which a sweep that names no network has it whole
  bool swept_on_hosts = false;           // there too: a call takes a host milliseconds
  // Adds graph, inputs and outputs to a network that has all the rest; no size of `options` is 0.
  std::function<void(const BuildOptions& options, Network& network)> builder = {};

  bool decodes() const { return enlarges > 0; }
  bool lets_pass(std::string_view tensor) const;
  // Noise levels of the training timesteps, rising; empty where it was trained at any between sigma_min and sigma_max.
  std::vector<double> training_sigmas() const;
  struct Levels {
    double min, max;
  };
  Levels trained_levels() const;    // from the least noise to the most
  void require(DType dtype) const;  // throws InvalidInput saying why it cannot be run in it
  Sizes own_sizes() const { return {image.height, image.width, image.frames, tokens}; }
  // The sizes asked for, and its own where there is a 0. Throws InvalidInput naming the first that it does not take,
  // and what it takes.
  Sizes resolved(Sizes asked) const;
  // Throws InvalidInput where it does not take such sizes, or a node so large a problem.
  Network build(const BuildOptions& options) const;
};

std::span<const NetworkInfo> all_networks();
const NetworkInfo& require_network(std::string_view name);                // throws InvalidInput with "did you mean"
std::vector<std::string> networks_where(bool (*so)(const NetworkInfo&));  // names

// The largest batch (or number of frames) below so many that fits; 0: none. One that `fits` throws InvalidInput of, as
// more than an op's problems may have, does not.
std::int64_t largest_fitting(std::int64_t too_many, const std::function<bool(std::int64_t)>& fits);

// Builds it; throws InvalidInput saying how many images it takes at a time where options.batch is more, for a dtype
// that it does not take, and for sampling where it decodes, or takes what its row does not say how to give.
Network build_or_say_limit(const NetworkInfo& info, const BuildOptions& options);
// The same of whatever is built for a batch.
void build_or_say_limit(const NetworkInfo& info, std::int64_t batch, bool guided,
                        const std::function<void(std::int64_t)>& build);

}  // namespace noisefloor::networks
