// The layers that networks are built of, each a node or two of a graph, with weights by their names in the checkpoint.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "networks/network.h"

namespace noisefloor::networks {

// An activation [n, height, width, channels]. Rows [n, channels] are images of one pixel; a text is as high as it has
// tokens.
struct Image {
  ValueId id = 0;
  std::int64_t height = 1, width = 1, channels = 0;
  std::int64_t pixels() const { return height * width; }
  Image with(ValueId other) const { return {other, height, width, channels}; }  // of the same shape
};

enum class Resample { none, up, down };

struct ConvOptions {
  std::int64_t stride = 1;                  // 1 or 2
  bool upsample = false;                    // nearest x2 before it
  std::optional<ValueId> image_shift = {};  // [n, cout]
  std::optional<ValueId> residual = {};     // as the output
  double gain = 1;                          // of everything, residual included
  const char* act = "none";                 // of the sums with the shift
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
  std::optional<ValueId> image_shift = {};  // [images, channels], each for as many of the rows
  std::optional<ValueId> residual = {};
  std::optional<Blend> blend = {};  // with a residual
  WeightSource::Layout layout = WeightSource::Layout::plain;
  // Of the weight, behind [n, k]: {1} or {1, 1} where the checkpoint has a convolution.
  std::vector<std::int64_t> file_shape_suffix = {};
  // Further modules that project the same rows, with a bias where this one has: channels are the sum of equal parts.
  std::vector<std::string> below = {};
  std::optional<WeightSource::Share> share = {};  // of weight and bias
};

struct TemporalOptions {
  std::optional<ValueId> image_shift = {};  // [n, cout]
  std::optional<ValueId> residual = {};
  std::optional<WeightSource::Share> share = {};  // of weight and bias
};

class Layers {
 public:
  Layers(Graph& graph, std::int64_t batch, DType dtype) : graph_(&graph), batch_(batch), dtype_(dtype) {}
  Layers of(std::int64_t batch) const { return {*graph_, batch, dtype_}; }  // so many images of the same graph

  // A node of this dtype, and its first output.
  ValueId add(const std::string& name, const char* op, const std::string& problem, const Bindings& inputs);
  // The same of resample: from an image, and `more` behind its sizes in the problem.
  ValueId resample(const std::string& name, const char* operation, const Image& x, const std::string& more = "",
                   const Bindings& also = {});
  // Cosines and sines of each value of t [n].
  Image waves(const std::string& name, ValueId t, std::int64_t channels, const char* order = "order=cos_sin");
  // `name` is the module's: name.weight [cout, cin, kernel, kernel], name.bias [cout].
  Image conv(const std::string& name, const Image& x, std::int64_t cout, int kernel, const ConvOptions& options = {});
  // Of stride 2, 2x2 without overlap: name.weight [cin, cout, 2, 2].
  Image conv_transpose(const std::string& name, const Image& x, std::int64_t cout);
  Image norm(const std::string& name, const Image& x, const NormOptions& options);
  // Every pixel times name.weight [channels, x.channels].
  Image linear(const std::string& name, const Image& x, std::int64_t channels, const LinearOptions& options = {});
  // From a projection [n, pixels, 3, heads, dim]. With `frames` along those, for every pixel by itself: so many images
  // in a row are a video's.
  Image attention(const std::string& name, const Image& qkv, std::int64_t heads, std::int64_t frames = 0);
  // From projections [n, queries or keys, heads, dim].
  Image attention(const std::string& name, const Image& q, const Image& k, const Image& v, std::int64_t heads);
  // Along `frames` frames, which stand below each other in each image: name.weight [cout, cin, 3, 1, 1].
  Image temporal_conv(const std::string& name, const Image& x, std::int64_t cout, std::int64_t frames,
                      const TemporalOptions& options = {});
  Image shifted(const std::string& name, const Image& x, ValueId shift);  // x + shift [n, channels]
  // Each image `times` times, one behind the other.
  Image repeated(const std::string& name, const Image& x, std::int64_t times);
  Image layer_norm(const std::string& name, const Image& x);
  // Of rows; most stand in the op before them.
  Image silu(const std::string& name, const Image& rows);
  // Copied to channels-first, where some originals leave an image, and back to where all here read it.
  Image channels_first_and_back(const std::string& name, const Image& x);
  Image upsample(const std::string& name, const Image& x);
  Image downsample(const std::string& name, const Image& x);
  Image concat(const std::string& name, const Image& x, const Image& skip);
  // x, which a block of the decoder joins; and what that block gets from below, with the last that was kept.
  Image kept(const Image& x);
  Image join(const std::string& name, const Image& below);
  ValueId cast(const std::string& name, ValueId x, DType to);  // x itself where nothing is to be done

  std::int64_t batch() const { return batch_; }
  DType dtype() const { return dtype_; }
  Graph& graph() { return *graph_; }
  const std::vector<ValueId>& below() const { return below_; }  // of join(), in order

 private:
  Graph* graph_;
  std::int64_t batch_;
  DType dtype_;
  std::vector<Image> kept_;
  std::vector<ValueId> below_;
};

// ---- For builders: what a network takes and gives (inputs.cpp)

// An image, or video, of the network's sizes that it takes `n` of, in fp32.
ValueId take_image(Network& network, const char* name, std::int64_t n);
// The image that it gives for each of its calls, which becomes fp32; and what join() left.
void give_image(Network& network, Layers& layers, const Image& image);

// x, and x once more behind it: the two halves of classifier-free guidance.
ValueId twice(Graph& graph, ValueId x);

// One side of the preconditioning of Karras et al. (NeurIPS 2022), of the images x at the levels sigma: its outputs.
std::vector<ValueId> precondition(Graph& graph, const std::string& name, const char* side, double sigma_data,
                                  const Bindings& inputs);

// A network of images, whose rows are frames, under that preconditioning. Takes x, sigma and labels, and gives x0.
// `inner` makes what is in it of the noise to embed, of a call or with levels ahead of all calls, and of the scaled
// image, which is fp32.
void build_preconditioned(const BuildOptions& options, Network& network, double sigma_data,
                          const std::function<Image(Layers& layers, ValueId c_noise, const Image& x)>& inner);

// `x` as a predictor of noise takes it. With guidance twice, and for a sampler, whose latents are x0 + sigma noise,
// brought to unit variance by the input sigma, which the network then takes.
ValueId input_of_noise_predictor(const BuildOptions& options, Network& network, ValueId x);

}  // namespace noisefloor::networks
