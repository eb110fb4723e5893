// Source: Rombach et al., "High-Resolution Image Synthesis with Latent Diffusion Models" (CVPR 2022); the decoders of
// Stable Diffusion 1 and 2, and of SDXL, by the names of diffusers' checkpoints
// (vae/diffusion_pytorch_model.safetensors). Blattmann et al., "Stable Video Diffusion: Scaling Latent Video Diffusion
// Models to Large Datasets" (2023): its decoder of videos.
#include "networks/diffusers.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/catalogue.h"
#include "networks/blocks.h"
#include "networks/layers.h"

namespace noisefloor::networks {
namespace {

constexpr std::int64_t kPictureChannels = 3;
constexpr double kEps = 1e-6, kTemporalEps = 1e-5;

// The modules of the attention: as they are named today, and in files from before.
struct AttentionNames {
  const char *q, *k, *v, *out;
};
constexpr AttentionNames kNames{"to_q", "to_k", "to_v", "to_out.0"}, kOldNames{"query", "key", "value", "proj_attn"};
constexpr const char* kOldWeight = "decoder.mid_block.attentions.0.query.weight";

// Of a product.
std::int64_t most_rows() {
  return std::ranges::find(find_op("gemm")->fields, "m", &FieldInfo::name)->high;
}

class DecoderBuilder {
 public:
  DecoderBuilder(const Decoder& decoder, Network& network, const BuildOptions& options)
      : decoder_(decoder),
        names_(options.old_names ? kOldNames : kNames),
        frames_(network.image.frames),
        scale_(1 / network.info->latent_scale),
        layers_(network.graph, options.batch * frames_, options.dtype) {}

  Image build(Image h) {
    ConvOptions first;
    if (decoder_.temporal)  // its latents have no product before that
      first.times = scale_;
    else
      h = layers_.linear("post_quant_conv", h, h.channels, {.scale = scale_, .file_shape_suffix = {1, 1}});
    h = layers_.conv("decoder.conv_in", h, decoder_.channels.back(), 3, first);
    h = residual_block("decoder.mid_block.resnets.0", h, h.channels);
    h = attention("decoder.mid_block.attentions.0", h);
    h = residual_block("decoder.mid_block.resnets.1", h, h.channels);
    for (std::size_t i = 0; i < decoder_.channels.size(); ++i) {
      const std::string name = fmt::format("decoder.up_blocks.{}", i);
      for (int block = 0; block < decoder_.blocks; ++block)
        h = residual_block(fmt::format("{}.resnets.{}", name, block), h,
                           decoder_.channels[decoder_.channels.size() - 1 - i]);
      if (i + 1 < decoder_.channels.size())
        h = layers_.conv(name + ".upsamplers.0.conv", h, h.channels, 3, {.upsample = true});
    }
    h = layers_.conv("decoder.conv_out", norm("decoder.conv_norm_out", h), kPictureChannels, 3);
    if (!decoder_.temporal) return h;
    const Image video{h.id, frames_ * h.height, h.width, h.channels};
    return h.with(
        layers_.of(layers_.batch() / frames_).temporal_conv("decoder.time_conv_out", video, h.channels, frames_).id);
  }

  Layers& layers() { return layers_; }

 private:
  Image norm(const std::string& name, const Image& x, bool silu = true) {
    return layers_.norm(name, x, {.groups = decoder_.groups, .eps = kEps, .silu = silu});
  }

  Image residual_block(const std::string& name, const Image& x, std::int64_t cout) {
    if (!decoder_.temporal) return spatial_block(name, x, cout);
    return temporal_resnet_block(layers_, name + ".temporal_res_block",
                                 spatial_block(name + ".spatial_res_block", x, cout), {}, decoder_.groups, kTemporalEps,
                                 frames_, {name + ".time_mixer.mix_factor"});
  }

  Image spatial_block(const std::string& name, const Image& x, std::int64_t cout) {
    const Image h = layers_.conv(name + ".conv1", norm(name + ".norm1", x), cout, 3);
    Image skip = x;
    if (x.channels != cout) {
      const bool product = layers_.batch() * x.pixels() <= most_rows();  // else a convolution of one tap
      skip = product ? layers_.linear(name + ".conv_shortcut", x, cout, {.file_shape_suffix = {1, 1}})
                     : layers_.conv(name + ".conv_shortcut", x, cout, 1);
    }
    return layers_.conv(name + ".conv2", norm(name + ".norm2", h), cout, 3, {.residual = skip.id});
  }

  // Of one head, as wide as the image.
  Image attention(const std::string& name, const Image& x) {
    const auto module = [&](const char* of) { return name + "." + of; };
    const Image qkv = layers_.linear(module(names_.q), norm(name + ".group_norm", x, false), 3 * x.channels,
                                     {.below = {module(names_.k), module(names_.v)}});
    return layers_.linear(module(names_.out), layers_.attention(name, qkv, 1), x.channels, {.residual = x.id});
  }

  const Decoder& decoder_;
  AttentionNames names_;
  std::int64_t frames_;
  double scale_;   // of latents
  Layers layers_;  // of pictures, or of all frames
};

NetworkInfo row_of(const char* name, const char* description, double latent_scale, const Decoder& decoder,
                   std::int64_t side = 64) {
  return {.name = name,
          .description = description,
          .image = {side, side, 4},
          .divisor = 1,
          .enlarges = decoder.enlarges(),
          .old_weight = kOldWeight,
          .let_pass = {"encoder.", "quant_conv."},
          .folder = "vae",
          .parameters = 49'490'199,
          .latent_scale = latent_scale,
          .configuration = configuration_of(decoder),
          .builder = [decoder](const BuildOptions& options, Network& network) {
            build_decoder(decoder, options, network);
          }};
}

}  // namespace

void build_decoder(const Decoder& decoder, const BuildOptions& options, Network& network) {
  const auto& [height, width, channels, frames] = network.image;
  const ValueId x = take_image(network, "x", network.batch);
  DecoderBuilder builder(decoder, network, options);
  const ValueId in = builder.layers().cast("input", x, options.dtype);
  give_image(network, builder.layers(), builder.build({in, height, width, channels}));
}

NetworkInfo sd_vae_row() {
  return row_of("sd-vae", "Stable Diffusion 1 and 2's decoder of latents (Rombach et al. 2022), diffusers' checkpoints",
                0.18215, {.channels = {128, 256, 512, 512}});
}

NetworkInfo sdxl_vae_row() {
  NetworkInfo row = row_of("sdxl-vae", "SDXL's decoder of latents (Podell et al. 2023), diffusers' checkpoints",
                           0.13025, {.channels = {128, 256, 512, 512}}, 128);
  row.no_fp16 = "its activations exceed what fp16 holds (65504), and pictures come out black; take bf16 or fp32";
  return row;
}

NetworkInfo svd_vae_row() {
  const Decoder decoder{.channels = {128, 256, 512, 512}, .temporal = true};
  NetworkInfo row =
      row_of("svd-vae", "Stable Video Diffusion's decoder of latents (Blattmann et al. 2023), diffusers' checkpoints",
             0.18215, decoder);
  row.image = {72, 128, 4, 14};
  row.most_frames = 32;
  row.parameters = 63'579'183;
  return row;
}

}  // namespace noisefloor::networks
