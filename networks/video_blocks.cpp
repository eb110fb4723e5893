// Blends cost no pass over memory. A residual block's is x + (1 - a) h, where the factor is in its last convolution's
// weights; a transformer's is taken by the last product of its temporal half. The spatial half adds the places of
// frames as it ends, since the temporal one reads nothing else; the projection behind the blend, which is linear,
// undoes them.
#include "networks/video_blocks.h"

#include <fmt/format.h>

namespace noisefloor::networks {

Image temporal_resnet_block(Layers& layers, const std::string& name, const Image& spatial,
                            const std::optional<Embedding>& embedding, int groups, double eps, std::int64_t frames,
                            const WeightSource::Share& share) {
  const std::int64_t n = layers.batch() / frames, channels = spatial.channels;
  Layers videos(layers.graph(), n, layers.dtype());  // whose frames stand below each other
  Image h = videos.norm(name + ".norm1", {spatial.id, frames * spatial.height, spatial.width, channels},
                        {.groups = groups, .eps = eps});
  std::optional<ValueId> shift;  // a row a video; in the original a row a frame
  if (embedding) shift = projected(layers, name, *embedding, channels);
  const bool of_videos = embedding && embedding->n == n;
  h = videos.temporal_conv(name + ".conv1", h, channels, frames, {.image_shift = of_videos ? shift : std::nullopt});
  if (shift && !of_videos)
    h.id = layers.shifted(name + ".shift", {h.id, spatial.height, spatial.width, channels}, *shift).id;
  h = videos.norm(name + ".norm2", h, {.groups = groups, .eps = eps});
  h = videos.temporal_conv(name + ".conv2", h, channels, frames, {.residual = spatial.id, .share = share});
  return {h.id, spatial.height, spatial.width, channels};
}

Image video_resnet_block(Layers& layers, const std::string& name, const Image& x, std::int64_t cout,
                         const Embedding& of_frames, const std::optional<Embedding>& temporal, int groups, double eps,
                         std::int64_t frames) {
  const Image spatial = resnet_block(layers, name + ".spatial_res_block", x, cout, of_frames, groups, eps);
  return temporal_resnet_block(layers, name + ".temporal_res_block", spatial, temporal, groups, eps, frames,
                               {name + ".time_mixer.mix_factor", true});
}

Image video_transformer(Layers& layers, const std::string& name, const Image& x, const Text& text, std::int64_t heads,
                        int groups, std::int64_t frames) {
  const std::int64_t n = layers.batch(), c = x.channels, rows = n * x.pixels();
  const Image normed = layers.norm(name + ".norm", x, {.groups = groups, .eps = 1e-6, .silu = false});
  const ValueId places = layers.graph().constant("frames", {n}, DType::fp32, frames);
  const ValueId waves =
      layers.graph()
          .add(name + ".time_proj", "timestep_embedding", fmt::format("batch={},channels={},order=cos_sin", n, c),
               layers.dtype(), {{"t", places}})
          .at(0);
  const ValueId hidden = layers.linear(name + ".time_pos_embed.linear_1", waves, n, c, 4 * c, {.act = "silu"});
  const ValueId place = layers.linear(name + ".time_pos_embed.linear_2", hidden, n, 4 * c, c);

  Image spatial = x;
  spatial.id = layers.linear(name + ".proj_in", normed.id, rows, c, c);
  spatial = transformer_block(layers, name + ".transformer_blocks.0", spatial, text, heads, 0,
                              {.image_shift = text.original ? std::nullopt : std::optional(place)});
  Image mixed = text.original ? layers.shifted(name + ".shift", spatial, place) : spatial;

  const std::string temporal = name + ".temporal_transformer_blocks.0";
  const ValueId in = layers.layer_norm(temporal + ".norm_in", mixed.id, rows, c);
  const ValueId wide = layers.linear(temporal + ".ff_in.net.0.proj", in, rows, c, 4 * c, {.act = "geglu"});
  mixed.id = layers.linear(temporal + ".ff_in.net.2", wide, rows, 4 * c, c, {.residual = mixed.id});
  const std::string factor = name + ".time_mixer.mix_factor", last = name + ".proj_out";
  mixed = transformer_block(layers, temporal, mixed, text, heads, frames, {.blend = Blend{spatial.id, factor}});

  std::optional<ValueId> undone;  // of the blend's share of the spatial half
  if (!text.original)
    undone = layers.linear(last, place, n, c, c, {.scale = -1, .bias = false, .share = WeightSource::Share{factor}});
  mixed.id = layers.linear(last, mixed.id, rows, c, c, {.image_shift = undone, .residual = x.id});
  return mixed;
}

}  // namespace noisefloor::networks
