// The U-Net of Dhariwal and Nichol, "Diffusion Models Beat GANs on Image Synthesis" (NeurIPS 2021), as OpenAI's
// guided-diffusion builds it for 64x64: scale-shift norms, residual blocks that change resolution, attention in the new
// order.
#include <fmt/format.h>

#include "networks/layers.h"
#include "networks/network.h"

namespace noisefloor::networks {
namespace {

constexpr std::int64_t kChannels = 192, kEmbedding = 4 * kChannels, kHeadChannels = 64;
constexpr std::int64_t kMultipliers[] = {1, 2, 3, 4};
constexpr int kLevels = 4, kBlocks = 3, kClasses = 1000;
constexpr int kFirstAttention = 1;  // level: of a picture of 64x64 at 32x32, 16x16 and 8x8

class AdmBuilder {
 public:
  AdmBuilder(Network& network, std::int64_t n, const BuildOptions& options)
      : network_(network),
        layers_(network.graph, n, options.dtype),
        calls_(layers_.of(network.embedded())),
        original_(options.original) {}

  // silu(embedding of timestep and label) [n, 768], or of all calls, which every residual block starts from, and
  // computes in the original.
  void embed() {
    const Image waves = calls_.waves("timestep_embedding", network_.level().value, kChannels);
    const Image hidden = calls_.linear("time_embed.0", waves, kEmbedding, {.act = "silu"});
    const bool labels = network_.classes > 0;
    embedding_ = calls_.linear("time_embed.2", hidden, kEmbedding, {.act = labels || original_ ? "none" : "silu"});
    if (!labels) return;
    embedding_ = calls_.linear("label_emb", {network_.labels(), 1, 1, kClasses}, kEmbedding,
                               {.bias = false, .residual = embedding_.id, .layout = WeightSource::Layout::transposed});
    if (!original_) embedding_ = calls_.silu("embedding", embedding_);
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
    const Image in = original_ ? calls_.silu(name + ".emb_layers.0", embedding_) : embedding_;
    const ValueId scale_shift =
        layers_.graph().of_the_call(calls_.linear(name + ".emb_layers.1", in, 2 * cout).id, network_.hoisted_levels);
    h = layers_.norm(name + ".out_layers.0", h, {.scale_shift = scale_shift});
    if (skip.channels != cout) skip = layers_.conv(name + ".skip_connection", skip, cout, 1);
    return layers_.conv(name + ".out_layers.3", h, cout, 3, {.residual = skip.id});
  }

  Image attention(const std::string& name, const Image& x) {
    const Image h = layers_.norm(name + ".norm", x, {.silu = false});
    const Image qkv = layers_.linear(name + ".qkv", h, 3 * x.channels, {.file_shape_suffix = {1}});
    const Image mixed = layers_.attention(name + ".attention", qkv, x.channels / kHeadChannels);
    return layers_.linear(name + ".proj_out", mixed, x.channels, {.residual = x.id, .file_shape_suffix = {1}});
  }

  Layers& layers() { return layers_; }

 private:
  Network& network_;
  Layers layers_, calls_;  // of images; of what is embedded
  bool original_;
  Image embedding_;
};

void build_adm64(const BuildOptions& options, Network& network) {
  using Kind = NetworkTensor::Kind;
  const auto& [height, width, channels, frames] = network.image;
  const std::int64_t n = network.calls;
  ValueId x = take_image(network, "x", network.batch);
  const std::int64_t embedded = network.embedded();
  network.take("timesteps", Kind::timesteps, {embedded}, DType::fp32, sampler_step::kTrainingSteps,
               network.hoisted_levels > 0);
  if (options.conditional) network.take("labels", Kind::labels, {embedded, kClasses}, options.dtype, kClasses);

  AdmBuilder builder(network, n, options);
  Layers& layers = builder.layers();
  builder.embed();
  x = input_of_noise_predictor(options, network, x);
  Image h{layers.cast("input", x, options.dtype), height, width, channels};

  h = layers.kept(layers.conv("input_blocks.0.0", h, kChannels, 3));
  int index = 1;
  for (int level = 0; level < kLevels; ++level) {
    for (int block = 0; block < kBlocks; ++block, ++index) {
      const std::string name = fmt::format("input_blocks.{}", index);
      h = builder.residual_block(name + ".0", h, kMultipliers[level] * kChannels);
      if (level >= kFirstAttention) h = builder.attention(name + ".1", h);
      layers.kept(h);
    }
    if (level + 1 < kLevels)
      h = layers.kept(builder.residual_block(fmt::format("input_blocks.{}.0", index++), h, h.channels, Resample::down));
  }

  h = builder.residual_block("middle_block.0", h, h.channels);
  h = builder.attention("middle_block.1", h);
  h = builder.residual_block("middle_block.2", h, h.channels);

  index = 0;
  for (int level = kLevels - 1; level >= 0; --level) {
    for (int block = 0; block <= kBlocks; ++block, ++index) {
      const std::string name = fmt::format("output_blocks.{}", index);
      h = layers.join(name + ".cat", h);
      h = builder.residual_block(name + ".0", h, kMultipliers[level] * kChannels);
      int layer = 1;
      if (level >= kFirstAttention) h = builder.attention(fmt::format("{}.{}", name, layer++), h);
      if (level > 0 && block == kBlocks)
        h = builder.residual_block(fmt::format("{}.{}", name, layer), h, h.channels, Resample::up);
    }
  }
  h = layers.norm("out.0", h, {});
  // A sampler has no use for the learnt variances behind the noise.
  const std::int64_t out_channels = options.sampling ? channels : 2 * channels;
  give_image(network, layers, layers.conv("out.2", h, out_channels, 3, {.file_cout = 2 * channels}));
}

}  // namespace

NetworkInfo adm64_row() {
  return {.name = "adm64",
          .description = "ADM 64x64 (Dhariwal and Nichol 2021), OpenAI's guided-diffusion checkpoints",
          .prediction = sampler_step::Prediction::noise,
          .image = {64, 64, 3},
          .divisor = 1 << (kLevels - 1),
          .classes = kClasses,
          .label_weight = "label_emb.weight",
          .parameters = 295'904'454,  // its paper's 295.14 M are without the label embedding (1000 x 768)
          .unguided_checkpoints = "OpenAI's checkpoints of adm64",
          .schedule = sampler_step::Schedule::cosine,
          .swept = {1, 32},
          .builder = build_adm64};
}

}  // namespace noisefloor::networks
