#include "networks/transformer.h"

#include <fmt/format.h>

namespace noisefloor::networks {
namespace {

// Pixels are the rows of its products.
class Block {
 public:
  Block(Layers& layers, std::string name, std::int64_t heads, std::int64_t frames)
      : layers_(layers), name_(std::move(name)), heads_(heads), frames_(frames) {}

  Image build(Image x, const Text& text, LinearOptions end) {
    const Image mixed = self_attention(norm("norm1", x));
    if (text.tokens == 1 && !text.original) {
      x.id = project_with_one_key(mixed, x, text);
    } else {
      x.id = project("attn1.to_out.0", mixed, x.channels, {.residual = x.id}).id;
      x.id = project("attn2.to_out.0", cross_attention(norm("norm2", x), text), x.channels, {.residual = x.id}).id;
    }
    const Image h = project("ff.net.0.proj", norm("norm3", x), 4 * x.channels, {.act = "geglu"});
    end.residual = x.id;
    return project("ff.net.2", h, x.channels, end);
  }

 private:
  std::string part(const char* module) const { return name_ + "." + module; }

  Image norm(const char* module, const Image& x) {
    return {layers_.layer_norm(part(module), x.id, layers_.batch() * x.pixels(), x.channels), x.height, x.width,
            x.channels};
  }

  Image project(const char* module, const Image& x, std::int64_t channels, const LinearOptions& options) {
    return {layers_.linear(part(module), x.id, layers_.batch() * x.pixels(), x.channels, channels, options), x.height,
            x.width, channels};
  }

  Image self_attention(const Image& x) {
    const Image qkv =
        project("attn1.to_q", x, 3 * x.channels, {.bias = false, .below = {part("attn1.to_k"), part("attn1.to_v")}});
    return frames_ == 0 ? layers_.attention(part("attn1"), qkv.id, x, heads_)
                        : layers_.temporal_attention(part("attn1"), qkv.id, x, heads_, frames_);
  }

  // attn1's projection, its residual, and attn2 of one key as a shift of each text's images, which stand below each
  // other.
  ValueId project_with_one_key(const Image& mixed, const Image& x, const Text& text) {
    Graph& graph = layers_.graph();
    const std::int64_t c = x.channels;
    graph.leave_unread(part("norm2.weight"), {c});
    graph.leave_unread(part("norm2.bias"), {c});
    graph.leave_unread(part("attn2.to_q.weight"), {c, c});
    graph.leave_unread(part("attn2.to_k.weight"), {c, text.width});
    const ValueId value = layers_.linear(part("attn2.to_v"), text.id, text.n, text.width, c, {.bias = false});
    const ValueId shift = layers_.linear(part("attn2.to_out.0"), value, text.n, c, c);
    return project("attn1.to_out.0", mixed, c, {.image_shift = shift, .residual = x.id}).id;
  }

  // Keys and values apart from each other, as attention takes them. Every image has a text of its own, along frames
  // every pixel. Pixels of a video have the same, so it does not matter which queries stand together.
  Image cross_attention(const Image& x, const Text& text) {
    const std::int64_t rows = layers_.batch() * x.pixels(), queries = frames_ == 0 ? x.pixels() : frames_;
    Layers texts(layers_.graph(), text.n, layers_.dtype()), all(layers_.graph(), rows / queries, layers_.dtype());
    const ValueId read = texts.repeated(part("attn2.texts"), text.id, text.tokens * text.width, all.batch() / text.n);
    const ValueId q = project("attn2.to_q", x, x.channels, {.bias = false}).id;
    const auto of_text = [&](const char* module) {
      return layers_.linear(part(module), read, all.batch() * text.tokens, text.width, x.channels, {.bias = false});
    };
    const ValueId k = of_text("attn2.to_k"), v = of_text("attn2.to_v");
    const AttentionShape shape{queries, text.tokens, heads_, x.channels / heads_};
    return {all.attention(part("attn2"), q, k, v, shape), x.height, x.width, x.channels};
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
  const auto project = [&](const char* module, ValueId id, std::optional<ValueId> residual) {
    LinearOptions linear{.residual = residual};
    if (!options.linear_projection) linear.file_shape_suffix = {1, 1};
    const std::int64_t rows = layers.batch() * x.pixels();
    return Image{layers.linear(name + module, id, rows, x.channels, x.channels, linear), x.height, x.width, x.channels};
  };
  const Image normed = layers.norm(name + ".norm", x, {.groups = options.groups, .eps = 1e-6, .silu = false});
  Image h = project(".proj_in", normed.id, {});
  for (int i = 0; i < options.blocks; ++i)
    h = transformer_block(layers, fmt::format("{}.transformer_blocks.{}", name, i), h, text, options.heads);
  return project(".proj_out", h.id, x.id);
}

}  // namespace noisefloor::networks
