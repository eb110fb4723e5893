#include "networks/transformer.h"

#include <fmt/format.h>

namespace noisefloor::networks {
namespace {

// Rows of pixels, each of `channels`.
struct Rows {
  ValueId id;
  std::int64_t count, channels;
};

class Block {
 public:
  Block(Layers& layers, std::string name, const AttentionShape& self)
      : layers_(layers), name_(std::move(name)), self_(self) {}

  Rows build(Rows x, const Text& text) {
    x.id = out("attn1", self_attention(norm("norm1", x)), x);
    x.id = out("attn2", cross_attention(norm("norm2", x), text), x);
    return feed_forward(norm("norm3", x), x);
  }

 private:
  std::string part(const char* module) const { return name_ + "." + module; }

  Rows norm(const char* module, const Rows& x) {
    return {layers_.layer_norm(part(module), x.id, x.count, x.channels), x.count, x.channels};
  }

  ValueId self_attention(const Rows& x) {
    const ValueId qkv = layers_.linear(part("attn1.to_q"), x.id, x.count, x.channels, 3 * x.channels,
                                       {.bias = false, .below = {part("attn1.to_k"), part("attn1.to_v")}});
    return layers_.attention(part("attn1"), qkv, {0, 1, self_.queries, x.channels}, self_.heads).id;
  }

  // Keys and values apart: they depend on the text alone.
  ValueId cross_attention(const Rows& x, const Text& text) {
    const auto projected = [&](const char* module, ValueId rows, std::int64_t count, std::int64_t width) {
      return layers_.linear(part(module), rows, count, width, x.channels, {.bias = false});
    };
    const std::int64_t tokens = layers_.batch() * text.tokens;
    const ValueId q = projected("attn2.to_q", x.id, x.count, x.channels);
    const ValueId k = projected("attn2.to_k", text.id, tokens, text.width);
    const ValueId v = projected("attn2.to_v", text.id, tokens, text.width);
    return layers_.attention(part("attn2"), q, k, v, {self_.queries, text.tokens, self_.heads, self_.dim});
  }

  ValueId out(const char* module, ValueId mixed, const Rows& x) {
    return layers_.linear(part(module) + ".to_out.0", mixed, x.count, x.channels, x.channels, {.residual = x.id});
  }

  Rows feed_forward(const Rows& x, const Rows& residual) {
    const std::int64_t inner = 4 * x.channels;
    const ValueId h = layers_.linear(part("ff.net.0.proj"), x.id, x.count, x.channels, inner, {.act = "geglu"});
    return {layers_.linear(part("ff.net.2"), h, x.count, inner, x.channels, {.residual = residual.id}), x.count,
            x.channels};
  }

  Layers& layers_;
  std::string name_;
  AttentionShape self_;
};

}  // namespace

Image transformer(Layers& layers, const std::string& name, const Image& x, const Text& text,
                  const TransformerOptions& options) {
  const std::int64_t c = x.channels, count = layers.batch() * x.pixels();
  const auto project = [&](const char* module, const Image& image, std::optional<ValueId> residual) {
    return options.linear_projection
               ? Image{layers.linear(name + module, image.id, count, c, c, {.residual = residual}), x.height, x.width,
                       c}
               : layers.pointwise(name + module, image, c, residual);
  };
  const Image normed = layers.norm(name + ".norm", x, {.groups = options.groups, .eps = 1e-6, .silu = false});
  Rows rows{project(".proj_in", normed, {}).id, count, c};
  for (int i = 0; i < options.blocks; ++i)
    rows = Block(layers, fmt::format("{}.transformer_blocks.{}", name, i),
                 {x.pixels(), x.pixels(), options.heads, c / options.heads})
               .build(rows, text);
  return project(".proj_out", {rows.id, x.height, x.width, c}, x.id);
}

}  // namespace noisefloor::networks
