// A plain U-Net of handwritten digits, 32x32, as courses teach it (Ronneberger et al., "U-Net", MICCAI 2015): two 3x3
// convolutions with ReLU a level, convolutions of stride 2 down, transposed ones up, and no norms; under the
// preconditioning of Karras et al. (NeurIPS 2022). baselines/pytorch/networks/mnist_unet.py is the same.
#include <fmt/format.h>

#include <cmath>

#include "networks/layers.h"
#include "networks/trained_unets.h"

namespace noisefloor::networks {
namespace {

class ReluBuilder {
 public:
  ReluBuilder(const ReluUNet& unet, Network& network, Layers& layers)
      : unet_(unet), network_(network), layers_(layers), calls_(layers.of(network.embedded())) {}

  void embed(ValueId c_noise) {
    const std::int64_t channels = unet_.channels.front();
    embedding_ = calls_.waves("map_noise", c_noise, channels);
    if (network_.classes > 0)
      embedding_ = calls_.linear(
          "model.map_label", {network_.labels(), 1, 1, network_.classes}, channels,
          {.scale = std::sqrt(static_cast<double>(network_.classes)), .bias = false, .residual = embedding_.id});
    for (const char* layer : {"model.map_layer0", "model.map_layer1"})
      embedding_ = calls_.linear(layer, embedding_, unet_.embedding, {.act = "silu"});
  }

  Image build(Image h) {
    const std::int64_t image_channels = h.channels;
    const auto levels = static_cast<int>(unet_.channels.size());
    for (int i = 0; i < levels; ++i) {
      if (i > 0) h = layers_.conv(fmt::format("model.down.{}", i), layers_.kept(h), h.channels, 3, {.stride = 2});
      h = level(fmt::format("model.encoder.{}", i), h, channels(i));
    }
    for (int i = levels - 2; i >= 0; --i) {
      h = layers_.conv_transpose(fmt::format("model.up.{}", i), h, channels(i));
      h = level(fmt::format("model.decoder.{}", i), layers_.join(fmt::format("model.cat.{}", i), h), channels(i));
    }
    return layers_.conv("model.out", h, image_channels, 3);
  }

 private:
  std::int64_t channels(int level) const { return unet_.channels[static_cast<std::size_t>(level)]; }

  Image level(const std::string& name, const Image& x, std::int64_t cout) {
    const ValueId shift =
        layers_.graph().of_the_call(calls_.linear(name + ".embed", embedding_, cout).id, network_.hoisted_levels);
    const Image h = layers_.conv(name + ".conv0", x, cout, 3, {.image_shift = shift, .act = "relu"});
    return layers_.conv(name + ".conv1", h, cout, 3, {.act = "relu"});
  }

  const ReluUNet& unet_;
  Network& network_;
  Layers& layers_;
  Layers calls_;  // of what is embedded
  Image embedding_;
};

}  // namespace

void build_relu_unet(const ReluUNet& unet, const BuildOptions& options, Network& network) {
  build_preconditioned(options, network, unet.sigma_data, [&](Layers& layers, ValueId c_noise, Image x) {
    ReluBuilder builder(unet, network, layers);
    builder.embed(c_noise);
    x.id = layers.cast("input", x.id, options.dtype);
    return builder.build(x);
  });
}

NetworkInfo mnist_unet_row() {
  return {.name = "mnist-unet",
          .description = "a plain U-Net of handwritten digits, 32x32, under EDM's preconditioning; to be trained here",
          .prediction = sampler_step::Prediction::x0,
          .image = {32, 32, 1},
          .divisor = 4,
          .classes = 10,
          .label_weight = "model.map_label.weight",
          .parameters = 2'294'273,
          .schedule = sampler_step::Schedule::karras,
          .builder = [](const BuildOptions& options, Network& network) { build_relu_unet({}, options, network); }};
}

}  // namespace noisefloor::networks
