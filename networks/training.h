// A training step of a network as one list of nodes: the batch is drawn, the network runs, the loss is taken, the
// gradients of all parameters follow (backward.h), and AdamW writes what is trained. What changes from step to step
// stands in memory (inputs and states), so a step is launched again and again as it is.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "networks/network.h"

namespace noisefloor::networks {

struct TrainingOptions {
  std::int64_t batch = 1;     // images of a step; a multiple of devices times parts
  std::int64_t devices = 1;   // that share it, each an equal, consecutive part
  std::int64_t device = 0;    // whose list of nodes it is
  std::int64_t parts = 1;     // of a device, one behind the other, whose gradients are added: micro-batches
  std::int64_t images = 1;    // of the data
  DType dtype = DType::fp32;  // of activations, their gradients and the weights that products read; bf16 or fp32
  std::int64_t seed = 0;      // of what is drawn
  bool conditional = true;    // as BuildOptions
  Sizes sizes = {};           // as BuildOptions
  double p_mean = -1.2, p_std = 1.2;                // of the logarithm of sigma, for a predictor of x0 (EDM)
  double shifted = 0, flipped = 0, unlabelled = 0;  // share of images, of training_batch
  double clip = 0;                                  // most that the gradients' norm may be; 0: any
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;    // of AdamW
  double decay = 0;
  bool ema = true;
  bool recompute = false;  // rewrite.h: less memory, more time, the same numbers
};

// States are flat: each parameter lies in all of them at the same place, a multiple of kParameterStep elements, and
// what is between two of them stays zero.
inline constexpr std::int64_t kParameterStep = 128;

struct Training {
  Network network;  // its graph is the whole step; inputs and outputs are those below
  // What the data are: fp32 [images, height, width, channels], and class numbers [images] of a conditional network. A
  // video is an image whose frames stand below each other.
  ValueId images = 0;
  std::optional<ValueId> labels = {};
  // What a step is told: fp32 [2], its number, as training_batch takes it; fp32 [4], rates as adamw takes them.
  ValueId step = 0, rates = 0;
  // What it tells: fp32 [1] each. The loss of a part is the mean of its images, the gradients are a share of those of
  // the whole step's mean; their norm is that before clipping.
  std::vector<ValueId> losses;
  ValueId norm = 0;
  // States, fp32 but for copies, which are of the options' dtype where that is not fp32. Norms read `parameters`.
  ValueId parameters = 0, m = 0, v = 0, gradients = 0;
  std::optional<ValueId> ema = {}, copies = {};
  // Of each parameter the part of `parameters`: Value::source says where it comes from and how it is laid out,
  // Value::part where it begins, in the other states, too. Whoever fills weights (Executor) fills such parts of
  // `parameters`, `ema` and `copies`.
  // What a blend shares with a weight (WeightSource::Share) is part of the weight that is trained, W times the share.
  std::vector<ValueId> slices;
  std::vector<ValueId> factors;  // such tensors m, parts of `parameters` too: without a gradient, only decay moves them

  std::vector<std::size_t> draws;  // nodes that draw a part's images: by their numbers alone others than the first one
  std::size_t update = 0;          // the first node behind the gradients, which others' are to be added to before it

  std::int64_t elements() const { return network.graph[parameters].elements(); }  // of a state
};

// Throws InvalidInput for what cannot be trained: a dtype, a kind of prediction, a node whose op has no gradient.
Training build_training(const NetworkInfo& info, const TrainingOptions& options);

}  // namespace noisefloor::networks
