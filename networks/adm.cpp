// The U-Net of Dhariwal and Nichol, "Diffusion Models Beat GANs on Image Synthesis" (NeurIPS 2021), as OpenAI's
// guided-diffusion builds it for 64x64: scale-shift norms, residual blocks that change resolution, attention in the new
// order. And that which unet.cu trains (github.com/clu0/unet.cu), by the names of its train_unet.py: without labels,
// with an embedding that shifts and does not scale, and pooling and repeating alone where the resolution changes.
#include <fmt/format.h>

#include "networks/layers.h"
#include "networks/trained_unets.h"

namespace noisefloor::networks {
namespace {

// Of the modules of a residual block, and of attention.
struct Names {
  const char *norm0, *conv0, *silu, *embedding, *norm1, *conv1;
  const char *norm, *projection;
};
constexpr Names kAdm = {"in_layers.0",  "in_layers.2",  "emb_layers.0", "emb_layers.1",
                        "out_layers.0", "out_layers.3", "norm",         "proj_out"};
constexpr Names kUnetcu = {"gn1", "cv3_1", "silu_emb", "l_emb", "gn2", "cv3_2", "gn", "proj"};

class AdmBuilder {
 public:
  AdmBuilder(const AdmUNet& unet, Network& network, const BuildOptions& options)
      : unet_(unet),
        names_(unet.of_unetcu ? kUnetcu : kAdm),
        network_(network),
        layers_(network.graph, network.calls, options.dtype),
        calls_(layers_.of(network.embedded())),
        original_(options.original) {}

  // silu(embedding of timestep and label) [n, 4 channels], or of all calls, which every residual block starts from, and
  // computes in the original.
  void embed() {
    const std::int64_t width = 4 * unet_.channels;
    const Image waves = calls_.waves("timestep_embedding", network_.level().value, unet_.channels,
                                     unet_.of_unetcu ? "order=cos_sin,max_period=1000" : "order=cos_sin");
    const Image hidden = calls_.linear("time_embed.0", waves, width, {.act = "silu"});
    const bool labels = network_.classes > 0;
    embedding_ = calls_.linear("time_embed.2", hidden, width, {.act = labels || original_ ? "none" : "silu"});
    if (!labels) return;
    embedding_ = calls_.linear("label_emb", {network_.labels(), 1, 1, network_.classes}, width,
                               {.bias = false, .residual = embedding_.id, .layout = WeightSource::Layout::transposed});
    if (!original_) embedding_ = calls_.silu("embedding", embedding_);
  }

  // Up to the last norm.
  Image build(Image h) {
    h = layers_.kept(layers_.conv("input_blocks.0.0", h, unet_.channels, 3));
    int index = 1;
    for (int level = 0; level < unet_.levels; ++level) {
      for (int i = 0; i < unet_.blocks; ++i) h = layers_.kept(block(fmt::format("input_blocks.{}", index++), h, level));
      if (level + 1 < unet_.levels)
        h = layers_.kept(resampled(fmt::format("input_blocks.{}.0", index++), h, Resample::down));
    }
    h = residual_block("middle_block.0", h, h.channels);
    h = attention("middle_block.1", h);
    h = residual_block("middle_block.2", h, h.channels);
    index = 0;
    for (int level = unet_.levels - 1; level >= 0; --level)
      for (int i = 0; i <= unet_.blocks; ++i) {
        const std::string name = fmt::format("output_blocks.{}", index++);
        h = block(name, layers_.join(name + ".cat", h), level);
        if (level > 0 && i == unet_.blocks)
          h = resampled(fmt::format("{}.{}", name, attends(level) ? 2 : 1), h, Resample::up);
      }
    return layers_.norm("out.0", h, {.groups = unet_.groups});
  }

  Layers& layers() { return layers_; }

 private:
  bool attends(int level) const { return level >= unet_.first_attention; }

  Image block(const std::string& name, const Image& x, int level) {
    const Image h = residual_block(name + ".0", x, (level + 1) * unet_.channels);
    return attends(level) ? attention(name + ".1", h) : h;
  }

  Image resampled(const std::string& name, const Image& x, Resample resample) {
    if (!unet_.of_unetcu) return residual_block(name, x, x.channels, resample);
    return resample == Resample::down ? layers_.downsample(name, x) : layers_.upsample(name, x);
  }

  Image residual_block(const std::string& name, const Image& x, std::int64_t cout, Resample resample = Resample::none) {
    const auto module = [&](const char* part) { return fmt::format("{}.{}", name, part); };
    const auto embedded = [&](std::int64_t channels) {
      const Image in = original_ ? calls_.silu(module(names_.silu), embedding_) : embedding_;
      const Image out = calls_.linear(module(names_.embedding), in, channels);
      return layers_.graph().of_the_call(out.id, network_.hoisted_levels);
    };
    Image h = layers_.norm(module(names_.norm0), x, {.groups = unet_.groups});
    Image skip = x;
    if (resample == Resample::down) {
      h = layers_.downsample(name + ".h_upd", h);
      skip = layers_.downsample(name + ".x_upd", x);
    } else if (resample == Resample::up) {
      skip = layers_.upsample(name + ".x_upd", x);
    }
    ConvOptions first{.upsample = resample == Resample::up};
    if (unet_.of_unetcu) first.image_shift = embedded(cout);
    h = layers_.conv(module(names_.conv0), h, cout, 3, first);
    NormOptions second{.groups = unet_.groups};
    if (!unet_.of_unetcu) second.scale_shift = embedded(2 * cout);
    h = layers_.norm(module(names_.norm1), h, second);
    if (skip.channels != cout) skip = layers_.conv(name + ".skip_connection", skip, cout, 1);
    return layers_.conv(module(names_.conv1), h, cout, 3, {.residual = skip.id});
  }

  Image attention(const std::string& name, const Image& x) {
    const Image h = layers_.norm(fmt::format("{}.{}", name, names_.norm), x, {.groups = unet_.groups, .silu = false});
    const Image qkv = layers_.linear(name + ".qkv", h, 3 * x.channels, {.file_shape_suffix = {1}});
    const Image mixed = layers_.attention(name + ".attention", qkv, x.channels / unet_.head_channels);
    return layers_.linear(fmt::format("{}.{}", name, names_.projection), mixed, x.channels,
                          {.residual = x.id, .file_shape_suffix = {1}});
  }

  const AdmUNet& unet_;
  const Names& names_;
  Network& network_;
  Layers layers_, calls_;  // of images; of what is embedded
  bool original_;
  Image embedding_;
};

}  // namespace

void build_adm(const AdmUNet& unet, const BuildOptions& options, Network& network) {
  using Kind = NetworkTensor::Kind;
  const auto& [height, width, channels, frames] = network.image;
  const std::int64_t embedded = network.embedded();
  ValueId x = take_image(network, "x", network.batch);
  network.take("timesteps", Kind::timesteps, {embedded}, DType::fp32, sampler_step::kTrainingSteps,
               network.hoisted_levels > 0);
  if (network.classes > 0)
    network.take("labels", Kind::labels, {embedded, network.classes}, options.dtype, network.classes);
  AdmBuilder builder(unet, network, options);
  Layers& layers = builder.layers();
  builder.embed();
  x = input_of_noise_predictor(options, network, x);
  const Image h = builder.build({layers.cast("input", x, options.dtype), height, width, channels});
  // A sampler has no use for the learnt variances behind the noise.
  const std::int64_t learnt = unet.of_unetcu ? channels : 2 * channels;
  give_image(network, layers, layers.conv("out.2", h, options.sampling ? channels : learnt, 3, {.file_cout = learnt}));
}

NetworkInfo adm64_row() {
  return {.name = "adm64",
          .description = "ADM 64x64 (Dhariwal and Nichol 2021), OpenAI's guided-diffusion checkpoints",
          .prediction = sampler_step::Prediction::noise,
          .image = {64, 64, 3},
          .divisor = 8,
          .classes = 1000,
          .label_weight = "label_emb.weight",
          .parameters = 295'904'454,  // its paper's 295.14 M are without the label embedding (1000 x 768)
          .unguided_checkpoints = "OpenAI's checkpoints of adm64",
          .schedule = sampler_step::Schedule::cosine,
          .swept = {1, 32},
          .builder = [](const BuildOptions& options, Network& network) { build_adm({}, options, network); }};
}

NetworkInfo unetcu_row() {
  return {.name = "unetcu",
          .description = "the 64x64 U-Net that unet.cu trains, unconditional; its files are read and written",
          .prediction = sampler_step::Prediction::noise,
          .image = {64, 64, 3},
          .divisor = 8,
          .parameters = 20'494'211,
          .schedule = sampler_step::Schedule::linear,
          .builder = [](const BuildOptions& options, Network& network) {
            build_adm({.channels = 64, .blocks = 2, .first_attention = 2, .head_channels = 32, .of_unetcu = true},
                      options, network);
          }};
}

}  // namespace noisefloor::networks
