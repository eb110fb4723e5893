// The layers that U-Nets are built of, each a node or two of a graph, with weights by their names in the checkpoint.
#pragma once

#include <optional>
#include <string>

#include "networks/network.h"

namespace noisefloor::networks {

// An activation [n, height, width, channels].
struct Image {
  ValueId id = 0;
  std::int64_t height = 0, width = 0, channels = 0;
  std::int64_t pixels() const { return height * width; }
};

struct ConvOptions {
  std::int64_t stride = 1;                  // 1 or 2
  bool upsample = false;                    // nearest x2 before it
  std::optional<ValueId> image_shift = {};  // [n, cout]
  std::optional<ValueId> residual = {};     // as the output
  double gain = 1;                          // of everything, residual included
  std::int64_t file_cout = 0;               // of the checkpoint, where only its first channels are wanted
  double times = 1;                         // of its weight, for an input that was divided by it
};

struct NormOptions {
  int groups = 32;
  double eps = 1e-5;
  bool silu = true;
  std::optional<ValueId> scale_shift = {};  // [n, 2 channels], scale first
};

// What a sum is blended with, as the output, and the module's tensor [1] whose sigmoid is its share.
struct Blend {
  ValueId with = 0;
  std::string factor;
};

struct LinearOptions {
  const char* act = "none";
  double scale = 1;
  bool bias = true;
  std::optional<ValueId> image_shift = {};  // [images, n], whose rows are of m / images each
  std::optional<ValueId> residual = {};
  std::optional<Blend> blend = {};  // with a residual
  WeightSource::Layout layout = WeightSource::Layout::plain;
  std::vector<std::int64_t> file_shape_suffix =
      {};  // behind [n, k]: {1} or {1, 1} where the checkpoint has a convolution
  // Further modules that project the same rows, with a bias where this one has: n is the sum of equal parts.
  std::vector<std::string> below = {};
  std::optional<WeightSource::Share> share = {};  // of weight and bias
};

struct TemporalOptions {
  std::optional<ValueId> image_shift = {};  // [n, cout]
  std::optional<ValueId> residual = {};
  std::optional<WeightSource::Share> share = {};  // of weight and bias
};

// Queries attend to keys, heads of `dim` side by side in each row.
struct AttentionShape {
  std::int64_t queries = 0, keys = 0, heads = 0, dim = 0;
};

class Layers;

// For builders: an image, or video, of the network's sizes that it takes `n` of, in fp32.
ValueId take_image(Network& network, const char* name, std::int64_t n);
// The image that it gives for each of its calls, which becomes fp32; and what join() left.
void give_image(Network& network, Layers& layers, const Image& image);

// For builders: a network of images, whose rows are frames, under the preconditioning of Karras et al. (NeurIPS 2022).
// Takes x, sigma and labels, and gives x0. `inner` makes what is in it of the noise to embed and of the scaled image,
// which is fp32.
void build_preconditioned(const BuildOptions& options, Network& network, double sigma_data,
                          const std::function<Image(Layers& layers, ValueId c_noise, const Image& x)>& inner);

// For builders: `x` as a predictor of noise takes it. With guidance twice, and for a sampler, whose latents are x0 +
// sigma noise, brought to unit variance by the input sigma, which the network then takes.
ValueId input_of_noise_predictor(const BuildOptions& options, Network& network, ValueId x);

// For builders: `c_noise`, which edm_precondition made of a call's sigma, or with levels ahead that of all calls.
ValueId c_noise_to_embed(Network& network, ValueId c_noise);

// x, and x once more behind it: the two halves of classifier-free guidance.
ValueId twice(Graph& graph, ValueId x);

class Layers {
 public:
  Layers(Graph& graph, std::int64_t batch, DType dtype) : graph_(&graph), batch_(batch), dtype_(dtype) {}

  // A node of this dtype, and its first output.
  ValueId add(const std::string& name, const char* op, const std::string& problem, const Bindings& inputs);
  // The same of resample: from an image, and `more` behind its sizes in the problem.
  ValueId resample(const std::string& name, const char* operation, const Image& x, const std::string& more = "",
                   const Bindings& also = {});
  // Cosines and sines of each of `n` values of t: [n, channels].
  ValueId waves(const std::string& name, ValueId t, std::int64_t n, std::int64_t channels,
                const char* order = "order=cos_sin");
  // `name` is the module's: name.weight [cout, cin, kernel, kernel], name.bias [cout].
  Image conv(const std::string& name, const Image& x, std::int64_t cout, int kernel, const ConvOptions& options = {});
  Image norm(const std::string& name, const Image& x, const NormOptions& options);
  // Rows of `x` [m, k] times name.weight [n, k].
  ValueId linear(const std::string& name, ValueId x, std::int64_t m, std::int64_t k, std::int64_t n,
                 const LinearOptions& options = {});
  // From a projection [n, pixels, 3, heads, dim] to [n, pixels, heads, dim].
  Image attention(const std::string& name, ValueId qkv, const Image& like, std::int64_t heads);
  // From projections [n, queries or keys, heads, dim] to [n, queries, heads, dim].
  ValueId attention(const std::string& name, ValueId q, ValueId k, ValueId v, const AttentionShape& shape);
  // Along `frames` frames, which stand below each other in each image: name.weight [cout, cin, 3, 1, 1].
  Image temporal_conv(const std::string& name, const Image& x, std::int64_t cout, std::int64_t frames,
                      const TemporalOptions& options = {});
  // From a projection [n, frames, pixels, 3, heads, dim]; images are frames here, `frames` of them a video.
  Image temporal_attention(const std::string& name, ValueId qkv, const Image& like, std::int64_t heads,
                           std::int64_t frames);
  // x + shift, which is [n, channels].
  Image shifted(const std::string& name, const Image& x, ValueId shift);
  // Each of n rows `times` times, one behind the other.
  ValueId repeated(const std::string& name, ValueId rows, std::int64_t width, std::int64_t times);
  // Of each of `rows` rows of `channels`.
  ValueId layer_norm(const std::string& name, ValueId x, std::int64_t rows, std::int64_t channels);
  // The same of activations of their own; most stand in the op before them.
  ValueId silu(const std::string& name, ValueId x, std::int64_t rows, std::int64_t channels);
  // Copied to channels-first, where some originals leave an image, and back to where all here read it.
  ValueId channels_first_and_back(const std::string& name, const Image& x);
  Image upsample(const std::string& name, const Image& x);
  Image downsample(const std::string& name, const Image& x);
  Image concat(const std::string& name, const Image& x, const Image& skip);
  // The same of what a block of the decoder gets from below, and of its skip.
  Image join(const std::string& name, const Image& below, const Image& skip);
  ValueId cast(const std::string& name, ValueId x, DType from, DType to);  // x itself where nothing is to be done

  std::int64_t batch() const { return batch_; }
  DType dtype() const { return dtype_; }
  Graph& graph() { return *graph_; }
  const std::vector<ValueId>& below() const { return below_; }  // of join(), in order

 private:
  Graph* graph_;
  std::int64_t batch_;
  DType dtype_;
  std::vector<ValueId> below_;
};

}  // namespace noisefloor::networks
