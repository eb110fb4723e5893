#include "networks/blocks.h"

#include <fmt/format.h>

namespace noisefloor::networks {

// ---- residual blocks

ValueId projected(Layers& layers, const std::string& name, const Embedding& embedding, std::int64_t channels) {
  const auto& [rows, n, activated, hoisted_levels] = embedding;
  Layers of_rows = layers.of(n);
  const Image in = activated ? rows : of_rows.silu(name + ".nonlinearity", rows);
  return layers.graph().of_the_call(of_rows.linear(name + ".time_emb_proj", in, channels).id, hoisted_levels);
}

Image resnet_block(Layers& layers, const std::string& name, const Image& x, std::int64_t cout,
                   const Embedding& embedding, int groups, double eps) {
  Image h = layers.norm(name + ".norm1", x, {.groups = groups, .eps = eps});
  const ValueId shift = projected(layers, name, embedding, cout);
  h = layers.conv(name + ".conv1", h, cout, 3, {.image_shift = shift});
  h = layers.norm(name + ".norm2", h, {.groups = groups, .eps = eps});
  Image skip = x;
  if (x.channels != cout)  // a convolution of one tap: a product
    skip = layers.linear(name + ".conv_shortcut", x, cout, {.file_shape_suffix = {1, 1}});
  return layers.conv(name + ".conv2", h, cout, 3, {.residual = skip.id});
}

// ---- transformers

namespace {

// Pixels are the rows of its products.
class Block {
 public:
  Block(Layers& layers, std::string name, std::int64_t heads, std::int64_t frames)
      : layers_(layers), name_(std::move(name)), heads_(heads), frames_(frames) {}

  Image build(Image x, const Text& text, LinearOptions end) {
    const std::vector<std::string> keys_and_values{part("attn1.to_k"), part("attn1.to_v")};
    const Image qkv =
        project("attn1.to_q", norm("norm1", x), 3 * x.channels, {.bias = false, .below = keys_and_values});
    const Image mixed = layers_.attention(part("attn1"), qkv, heads_, frames_);
    if (text.tokens.pixels() == 1 && !text.original) {
      x = project_with_one_key(mixed, x, text);
    } else {
      x = project("attn1.to_out.0", mixed, x.channels, {.residual = x.id});
      x = project("attn2.to_out.0", cross_attention(norm("norm2", x), text), x.channels, {.residual = x.id});
    }
    end.residual = x.id;
    return project("ff.net.2", project("ff.net.0.proj", norm("norm3", x), 4 * x.channels, {.act = "geglu"}), x.channels,
                   end);
  }

 private:
  std::string part(const char* module) const { return name_ + "." + module; }
  Image norm(const char* module, const Image& x) { return layers_.layer_norm(part(module), x); }
  Image project(const char* module, const Image& x, std::int64_t channels, const LinearOptions& options) {
    return layers_.linear(part(module), x, channels, options);
  }

  // attn1's projection, its residual, and attn2 of one key as a shift of each text's images, which stand below each
  // other.
  Image project_with_one_key(const Image& mixed, const Image& x, const Text& text) {
    Graph& graph = layers_.graph();
    const std::int64_t c = x.channels;
    graph.leave_unread(part("norm2.weight"), {c});
    graph.leave_unread(part("norm2.bias"), {c});
    graph.leave_unread(part("attn2.to_q.weight"), {c, c});
    graph.leave_unread(part("attn2.to_k.weight"), {c, text.tokens.channels});
    Layers texts = layers_.of(text.n);
    const Image value = texts.linear(part("attn2.to_v"), text.tokens, c, {.bias = false});
    const Image shift = texts.linear(part("attn2.to_out.0"), value, c);
    return project("attn1.to_out.0", mixed, c, {.image_shift = shift.id, .residual = x.id});
  }

  // Keys and values apart from each other, as attention takes them. Every image has a text of its own, along frames
  // every pixel. Pixels of a video have the same, so it does not matter which queries stand together.
  Image cross_attention(const Image& x, const Text& text) {
    const std::int64_t queries = frames_ == 0 ? x.pixels() : frames_;
    const LinearOptions no_bias{.bias = false};
    Layers all = layers_.of(layers_.batch() * x.pixels() / queries);
    const Image read = layers_.of(text.n).repeated(part("attn2.texts"), text.tokens, all.batch() / text.n);
    const Image q = project("attn2.to_q", x, x.channels, no_bias);
    const Image k = all.linear(part("attn2.to_k"), read, x.channels, no_bias);
    const Image v = all.linear(part("attn2.to_v"), read, x.channels, no_bias);
    return x.with(all.attention(part("attn2"), {q.id, queries, 1, q.channels}, k, v, heads_).id);
  }

  Layers& layers_;
  std::string name_;
  std::int64_t heads_, frames_;
};

}  // namespace

Image transformer_block(Layers& layers, const std::string& name, const Image& x, const Text& text, std::int64_t heads,
                        std::int64_t frames, LinearOptions end) {
  return Block(layers, name, heads, frames).build(x, text, std::move(end));
}

Image transformer(Layers& layers, const std::string& name, const Image& x, const Text& text,
                  const TransformerOptions& options) {
  LinearOptions linear;
  if (!options.linear_projection) linear.file_shape_suffix = {1, 1};
  Image h = layers.norm(name + ".norm", x, {.groups = options.groups, .eps = 1e-6, .silu = false});
  h = layers.linear(name + ".proj_in", h, x.channels, linear);
  for (int i = 0; i < options.blocks; ++i)
    h = transformer_block(layers, fmt::format("{}.transformer_blocks.{}", name, i), h, text, options.heads);
  linear.residual = x.id;
  return layers.linear(name + ".proj_out", h, x.channels, linear);
}

// ---- of videos

// Blends cost no pass over memory. A residual block's is x + (1 - a) h, where the factor is in its last convolution's
// weights; a transformer's is taken by the last product of its temporal half. The spatial half adds the places of
// frames as it ends, since the temporal one reads nothing else; the projection behind the blend, which is linear,
// undoes them.

Image temporal_resnet_block(Layers& layers, const std::string& name, const Image& spatial,
                            const std::optional<Embedding>& embedding, int groups, double eps, std::int64_t frames,
                            const WeightSource::Share& share) {
  const std::int64_t n = layers.batch() / frames, channels = spatial.channels;
  Layers videos = layers.of(n);  // whose frames stand below each other
  Image h = videos.norm(name + ".norm1", {spatial.id, frames * spatial.height, spatial.width, channels},
                        {.groups = groups, .eps = eps});
  std::optional<ValueId> shift;  // a row a video; in the original a row a frame
  if (embedding) shift = projected(layers, name, *embedding, channels);
  const bool of_videos = embedding && embedding->n == n;
  h = videos.temporal_conv(name + ".conv1", h, channels, frames, {.image_shift = of_videos ? shift : std::nullopt});
  if (shift && !of_videos) h.id = layers.shifted(name + ".shift", spatial.with(h.id), *shift).id;
  h = videos.norm(name + ".norm2", h, {.groups = groups, .eps = eps});
  h = videos.temporal_conv(name + ".conv2", h, channels, frames, {.residual = spatial.id, .share = share});
  return spatial.with(h.id);
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
  const std::int64_t n = layers.batch(), c = x.channels;
  const Image normed = layers.norm(name + ".norm", x, {.groups = groups, .eps = 1e-6, .silu = false});
  const ValueId places = layers.graph().constant("frames", {n}, DType::fp32, frames);
  Image place = layers.waves(name + ".time_proj", places, c);
  place = layers.linear(name + ".time_pos_embed.linear_1", place, 4 * c, {.act = "silu"});
  place = layers.linear(name + ".time_pos_embed.linear_2", place, c);

  Image spatial = layers.linear(name + ".proj_in", normed, c);
  spatial = transformer_block(layers, name + ".transformer_blocks.0", spatial, text, heads, 0,
                              {.image_shift = text.original ? std::nullopt : std::optional(place.id)});
  Image mixed = text.original ? layers.shifted(name + ".shift", spatial, place.id) : spatial;

  const std::string temporal = name + ".temporal_transformer_blocks.0";
  const Image in = layers.layer_norm(temporal + ".norm_in", mixed);
  const Image wide = layers.linear(temporal + ".ff_in.net.0.proj", in, 4 * c, {.act = "geglu"});
  mixed = layers.linear(temporal + ".ff_in.net.2", wide, c, {.residual = mixed.id});
  const std::string factor = name + ".time_mixer.mix_factor", last = name + ".proj_out";
  mixed = transformer_block(layers, temporal, mixed, text, heads, frames, {.blend = Blend{spatial.id, factor}});

  std::optional<ValueId> undone;  // of the blend's share of the spatial half
  if (!text.original)
    undone = layers.linear(last, place, c, {.scale = -1, .bias = false, .share = WeightSource::Share{factor}}).id;
  return layers.linear(last, mixed, c, {.image_shift = undone, .residual = x.id});
}

}  // namespace noisefloor::networks
