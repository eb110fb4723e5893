// The U-Net of Dhariwal and Nichol, "Diffusion Models Beat GANs on Image Synthesis" (NeurIPS 2021), as OpenAI's
// guided-diffusion builds it for 64x64: scale-shift norms, residual blocks that change resolution, attention in the new
// order.
#include <fmt/format.h>

#include <vector>

#include "networks/layers.h"
#include "networks/network.h"

namespace noisefloor::pipeline {
namespace {

constexpr std::int64_t kSize = 64, kImageChannels = 3, kChannels = 192, kEmbedding = 4 * kChannels, kHeadChannels = 64;
constexpr std::int64_t kMultipliers[] = {1, 2, 3, 4};
constexpr int kLevels = 4, kBlocks = 3, kClasses = 1000;
constexpr std::int64_t kLargestAttention = 32;  // at 32x32, 16x16 and 8x8

enum class Resample { none, up, down };

class Builder {
 public:
  Builder(Network& network, std::int64_t n, DType dtype) : layers_(network.graph, n, dtype) {}

  // silu(embedding of timestep and label) [n, 768]: every residual block starts from its SiLU.
  void embed(Network& network) {
    Graph& graph = layers_.graph();
    const std::int64_t n = layers_.batch();
    const ValueId waves = graph
                              .add("timestep_embedding", "timestep_embedding",
                                   fmt::format("batch={},channels={},order=cos_sin", n, kChannels), layers_.dtype(),
                                   {{"t", *network.timesteps}})
                              .at(0);
    const ValueId hidden = layers_.linear("time_embed.0", waves, n, kChannels, kEmbedding, {.act = "silu"});
    if (network.classes == 0) {
      embedding_ = layers_.linear("time_embed.2", hidden, n, kEmbedding, kEmbedding, {.act = "silu"});
      return;
    }
    const ValueId time = layers_.linear("time_embed.2", hidden, n, kEmbedding, kEmbedding);
    const ValueId sum = layers_.linear("label_emb", network.labels, n, kClasses, kEmbedding,
                                       {.bias = false, .residual = time, .layout = WeightSource::Layout::transposed});
    embedding_ = graph
                     .add("embedding", "elementwise", fmt::format("op=silu,n={},hw=1,channels={}", n, kEmbedding),
                          layers_.dtype(), {{"x", sum}})
                     .at(0);
  }

  Image residual_block(const std::string& name, const Image& x, std::int64_t cout, Resample resample = Resample::none) {
    Image h = layers_.norm(name + ".in_layers.0", x, {});
    Image skip = x;
    if (resample == Resample::down) {
      h = layers_.downsample(name + ".h_upd", h);
      skip = layers_.downsample(name + ".x_upd", x);
    } else if (resample == Resample::up) {
      skip = layers_.upsample(name + ".x_upd", x);
    }
    h = layers_.conv(name + ".in_layers.2", h, cout, 3, {.upsample = resample == Resample::up});
    const ValueId scale_shift =
        layers_.linear(name + ".emb_layers.1", embedding_, layers_.batch(), kEmbedding, 2 * cout);
    h = layers_.norm(name + ".out_layers.0", h, {.scale_shift = scale_shift});
    if (skip.channels != cout) skip = layers_.conv(name + ".skip_connection", skip, cout, 1);
    return layers_.conv(name + ".out_layers.3", h, cout, 3, {.residual = skip.id});
  }

  Image attention(const std::string& name, const Image& x) {
    const std::int64_t rows = layers_.batch() * x.pixels(), c = x.channels;
    const Image h = layers_.norm(name + ".norm", x, {.silu = false});
    const ValueId qkv = layers_.linear(name + ".qkv", h.id, rows, c, 3 * c, {.file_shape_suffix = {1}});
    const Image mixed = layers_.attention(name + ".attention", qkv, x, c / kHeadChannels);
    const ValueId out =
        layers_.linear(name + ".proj_out", mixed.id, rows, c, c, {.residual = x.id, .file_shape_suffix = {1}});
    return {out, x.size, c};
  }

  Layers& layers() { return layers_; }

 private:
  Layers layers_;
  ValueId embedding_ = 0;
};

}  // namespace

Network build_adm64(const BuildOptions& options) {
  Network network;
  network.name = "adm64";
  network.form = Network::Form::noise_prediction;
  network.batch = options.batch;
  network.size = kSize;
  network.channels = kImageChannels;
  network.out_channels = options.sampling ? kImageChannels : 2 * kImageChannels;
  network.classes = options.conditional ? kClasses : 0;
  network.schedule = sampler_step::Schedule::cosine;
  const std::int64_t n = options.guided ? 2 * options.batch : options.batch;
  Graph& graph = network.graph;
  network.x = graph.input("x", {options.batch, kSize, kSize, kImageChannels}, DType::fp32);
  network.timesteps = graph.input("timesteps", {n}, DType::fp32);
  if (options.conditional) network.labels = graph.input("labels", {n, kClasses}, options.dtype);

  Builder builder(network, n, options.dtype);
  Layers& layers = builder.layers();
  builder.embed(network);
  ValueId x = options.guided ? twice(graph, network.x) : network.x;
  if (options.sampling) {
    network.sigma = graph.input("sigma", {n}, DType::fp32);
    x = graph
            .add("scale", "edm_precondition",
                 fmt::format("side=input,batch={},elements={},sigma_data=1", n, kSize * kSize * kImageChannels),
                 DType::fp32, {{"x", x}, {"sigma", *network.sigma}})
            .at(0);
  }
  Image h{layers.cast("input", x, DType::fp32, options.dtype), kSize, kImageChannels};

  std::vector<Image> skips;
  int index = 0;
  const auto keep = [&](const Image& image) {
    h = image;
    skips.push_back(image);
    ++index;
  };
  keep(layers.conv("input_blocks.0.0", h, kChannels, 3));
  for (int level = 0; level < kLevels; ++level) {
    for (int block = 0; block < kBlocks; ++block) {
      const std::string name = fmt::format("input_blocks.{}", index);
      Image out = builder.residual_block(name + ".0", h, kMultipliers[level] * kChannels);
      if (out.size <= kLargestAttention) out = builder.attention(name + ".1", out);
      keep(out);
    }
    if (level + 1 < kLevels)
      keep(builder.residual_block(fmt::format("input_blocks.{}.0", index), h, h.channels, Resample::down));
  }

  h = builder.residual_block("middle_block.0", h, h.channels);
  h = builder.attention("middle_block.1", h);
  h = builder.residual_block("middle_block.2", h, h.channels);

  index = 0;
  for (int level = kLevels - 1; level >= 0; --level) {
    for (int block = 0; block <= kBlocks; ++block, ++index) {
      const std::string name = fmt::format("output_blocks.{}", index);
      h = layers.concat(name + ".cat", h, skips.back());
      skips.pop_back();
      h = builder.residual_block(name + ".0", h, kMultipliers[level] * kChannels);
      int layer = 1;
      if (h.size <= kLargestAttention) h = builder.attention(fmt::format("{}.{}", name, layer++), h);
      if (level > 0 && block == kBlocks)
        h = builder.residual_block(fmt::format("{}.{}", name, layer), h, h.channels, Resample::up);
    }
  }
  h = layers.norm("out.0", h, {});
  h = layers.conv("out.2", h, network.out_channels, 3, {.file_cout = 2 * kImageChannels});
  network.output = layers.cast("output", h.id, options.dtype, DType::fp32);
  return network;
}

}  // namespace noisefloor::pipeline
