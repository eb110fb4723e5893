// The DDPM++ U-Net as Karras et al. use it, "Elucidating the Design Space of Diffusion-Based Generative Models"
// (NeurIPS 2022), with their preconditioning around it, as NVlabs' EDM builds it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "networks/layers.h"
#include "networks/network.h"

namespace noisefloor::networks {
namespace {

struct Configuration {
  std::int64_t size;  // that it was trained on: its levels are named after it
  std::int64_t image_channels, channels;
  std::vector<std::int64_t> multipliers;
  int blocks;
  std::int64_t attention_size;  // the height at which attention (one head) stands
  std::int64_t classes;
  double sigma_data;
};

// The sum of two branches of equal variance keeps that variance.
const double kSkipScale = std::sqrt(0.5);

class EdmBuilder {
 public:
  EdmBuilder(Network& network, Layers& layers)
      : network_(network), layers_(layers), calls_(layers.of(network.embedded())) {}

  void embed(const Configuration& c, ValueId c_noise) {
    embedding_ = calls_.waves("map_noise", c_noise, c.channels, "order=sin_cos,endpoint=1");
    if (network_.classes > 0)
      embedding_ = calls_.linear("model.map_label", {network_.labels(), 1, 1, c.classes}, c.channels,
                                 {.scale = std::sqrt(static_cast<double>(c.classes)), .residual = embedding_.id});
    for (const char* layer : {"model.map_layer0", "model.map_layer1"})
      embedding_ = calls_.linear(layer, embedding_, 4 * c.channels, {.act = "silu"});
  }

  Image norm(const std::string& name, const Image& x, bool silu) {
    return layers_.norm(
        name, x, {.groups = static_cast<int>(std::min<std::int64_t>(32, x.channels / 4)), .eps = 1e-6, .silu = silu});
  }

  Image block(const std::string& name, const Image& x, std::int64_t cout, Resample resample = Resample::none,
              bool attention = false) {
    Image h = norm(name + ".norm0", x, true);
    Image skip = x;
    if (resample == Resample::down) {
      h = layers_.downsample(name + ".conv0.down", h);
      skip = layers_.downsample(name + ".skip.down", x);
    } else if (resample == Resample::up) {
      skip = layers_.upsample(name + ".skip.up", x);
    }
    const ValueId shift =
        layers_.graph().of_the_call(calls_.linear(name + ".affine", embedding_, cout).id, network_.hoisted_levels);
    h = layers_.conv(name + ".conv0", h, cout, 3, {.upsample = resample == Resample::up, .image_shift = shift});
    h = norm(name + ".norm1", h, true);
    if (resample != Resample::none || skip.channels != cout) skip = layers_.conv(name + ".skip", skip, cout, 1);
    h = layers_.conv(name + ".conv1", h, cout, 3, {.residual = skip.id, .gain = kSkipScale});
    if (!attention) return h;
    const Image qkv = layers_.linear(name + ".qkv", norm(name + ".norm2", h, false), 3 * cout,
                                     {.layout = WeightSource::Layout::hd3_to_3hd, .file_shape_suffix = {1, 1}});
    const Image mixed = layers_.attention(name + ".attention", qkv, 1);
    return layers_.conv(name + ".proj", mixed, cout, 1, {.residual = h.id, .gain = kSkipScale});
  }

  Layers& layers() { return layers_; }

 private:
  Network& network_;
  Layers& layers_;
  Layers calls_;  // of what is embedded
  Image embedding_;
};

Image u_net(EdmBuilder& builder, const Configuration& c, Image h) {
  Layers& layers = builder.layers();
  const int levels = static_cast<int>(c.multipliers.size());
  const auto level_name = [](const char* half, std::int64_t size, const std::string& part) {
    return fmt::format("model.{}.{}x{}_{}", half, size, size, part);
  };
  for (int level = 0; level < levels; ++level) {
    const std::int64_t size = c.size >> level;
    h = level == 0 ? layers.conv(level_name("enc", size, "conv"), h, c.channels, 3)
                   : builder.block(level_name("enc", size, "down"), h, h.channels, Resample::down);
    layers.kept(h);
    for (int index = 0; index < c.blocks; ++index)
      h = layers.kept(builder.block(level_name("enc", size, fmt::format("block{}", index)), h,
                                    c.multipliers[static_cast<std::size_t>(level)] * c.channels, Resample::none,
                                    size == c.attention_size));
  }
  for (int level = levels - 1; level >= 0; --level) {
    const std::int64_t size = c.size >> level;
    if (level + 1 == levels) {
      h = builder.block(level_name("dec", size, "in0"), h, h.channels, Resample::none, true);
      h = builder.block(level_name("dec", size, "in1"), h, h.channels);
    } else {
      h = builder.block(level_name("dec", size, "up"), h, h.channels, Resample::up);
    }
    for (int index = 0; index <= c.blocks; ++index) {
      const std::string name = level_name("dec", size, fmt::format("block{}", index));
      h = layers.join(name + ".cat", h);
      h = builder.block(name, h, c.multipliers[static_cast<std::size_t>(level)] * c.channels, Resample::none,
                        index == c.blocks && size == c.attention_size);
    }
  }
  h = builder.norm(level_name("dec", c.size, "aux_norm"), h, true);
  return layers.conv(level_name("dec", c.size, "aux_conv"), h, c.image_channels, 3);
}

void build(const Configuration& c, const BuildOptions& options, Network& network) {
  build_preconditioned(options, network, c.sigma_data, [&](Layers& layers, ValueId c_noise, Image x) {
    EdmBuilder builder(network, layers);
    builder.embed(c, c_noise);
    x.id = layers.cast("input", x.id, options.dtype);
    return u_net(builder, c, x);
  });
}

NetworkInfo row_of(const char* name, const char* description, const Configuration& c) {
  return {.name = name,
          .description = description,
          .prediction = sampler_step::Prediction::x0,
          .image = {c.size, c.size, c.image_channels},
          .divisor = std::int64_t{1} << (c.multipliers.size() - 1),
          .classes = c.classes,
          .label_weight = "model.map_label.weight",
          // Constants of the resampling, and the inputs of augmentation, which sampling leaves zero.
          .let_pass = {".resample_filter", "map_augment.weight"},
          .schedule = sampler_step::Schedule::karras,
          .builder = [c](const BuildOptions& options, Network& network) { build(c, options, network); }};
}

}  // namespace

NetworkInfo edm_cifar_row() {
  NetworkInfo row =
      row_of("edm-cifar", "DDPM++ 32x32 under EDM's preconditioning (Karras et al. 2022), NVlabs' checkpoints",
             {32, 3, 128, {2, 2, 2}, 4, 16, 10, 0.5});
  row.parameters = 55'735'299 - 9 * 128;  // without map_augment
  row.unguided_checkpoints = "NVlabs' checkpoints of edm-cifar";
  return row;
}

NetworkInfo digits_row() {
  NetworkInfo row = row_of("digits", "a small EDM network of handwritten digits, 8x8; its weights come with noisefloor",
                           {8, 1, 64, {1, 1}, 1, 4, 10, 0.75});
  row.parameters = 1'229'697;
  row.shipped = true;
  row.swept = {1, 100};
  row.swept_on_hosts = true;
  return row;
}

}  // namespace noisefloor::networks
