#include "networks/transformer.h"

#include <fmt/format.h>

namespace noisefloor::networks {
namespace {

// One BasicTransformerBlock. Pixels are the rows of its products.
class Block {
 public:
  Block(Layers& layers, std::string name, std::int64_t heads)
      : layers_(layers), name_(std::move(name)), heads_(heads) {}

  Image build(Image x, const Text& text) {
    x.id = project("attn1.to_out.0", self_attention(norm("norm1", x)), x.channels, {.residual = x.id}).id;
    x.id = project("attn2.to_out.0", cross_attention(norm("norm2", x), text), x.channels, {.residual = x.id}).id;
    const Image h = project("ff.net.0.proj", norm("norm3", x), 4 * x.channels, {.act = "geglu"});
    return project("ff.net.2", h, x.channels, {.residual = x.id});
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
    return layers_.attention(part("attn1"), qkv.id, x, heads_);
  }

  // Keys and values apart from each other, as attention takes them.
  Image cross_attention(const Image& x, const Text& text) {
    const ValueId q = project("attn2.to_q", x, x.channels, {.bias = false}).id;
    const auto of_text = [&](const char* module) {
      return layers_.linear(part(module), text.id, layers_.batch() * text.tokens, text.width, x.channels,
                            {.bias = false});
    };
    const ValueId k = of_text("attn2.to_k"), v = of_text("attn2.to_v");
    const AttentionShape shape{x.pixels(), text.tokens, heads_, x.channels / heads_};
    return {layers_.attention(part("attn2"), q, k, v, shape), x.height, x.width, x.channels};
  }

  Layers& layers_;
  std::string name_;
  std::int64_t heads_;
};

}  // namespace

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
    h = Block(layers, fmt::format("{}.transformer_blocks.{}", name, i), options.heads).build(h, text);
  return project(".proj_out", h.id, x.id);
}

}  // namespace noisefloor::networks
