// Of a transposed convolution, which is itself the gradient of one of stride 2: of its input that convolution, and of
// its weights that one's with the parts of x and dy exchanged. Either has the weights as [cin, kernel, kernel, cout].
#include "kernels/conv_transpose2d/conv_transpose2d.h"

#include <fmt/format.h>

#include "networks/backward.h"

namespace noisefloor::networks {
namespace {

// [first, taps, last] to [last, taps, first], of weights or of their gradient.
ValueId turned(Backward& walk, const Node& node, ValueId w, std::int64_t first, std::int64_t taps, std::int64_t last,
               const Bindings& written = {}) {
  const DType dtype = walk.graph()[w].dtype;
  const auto transpose = [&](ValueId x, std::int64_t n, std::int64_t rows, std::int64_t columns, const Bindings& to) {
    const std::string problem = fmt::format("op=nhwc_to_nchw,n={},hw={},channels={}", n, rows, columns);
    return walk.add(node, ".turned", "elementwise", problem, dtype, {{"x", x}}, to).at(0);
  };
  return transpose(transpose(w, first, taps, last, {}), 1, first, taps * last, written);
}

void conv_transpose2d_backward(const Node& node, Backward& walk) {
  const auto& p = node.problem.as<conv_transpose2d::Problem>();
  if (p.act == convolution::Activation::silu) Backward::refuse(node, "there is no gradient of its SiLU yet");
  const Gradient dy = p.act == convolution::Activation::relu ? walk.before_relu(node) : walk.of(node.value("y"));
  const ValueId x = node.value("x"), w = node.value("w");
  const std::int64_t taps = p.kernel * p.kernel, pixels = 4 * p.n * p.h * p.w;
  const std::string shape = fmt::format("n={},h={},w={},cin={},cout={},kernel={},stride=2,pad={},bias=0", p.n, 2 * p.h,
                                        2 * p.w, p.cout, p.cin, p.kernel, p.pad());
  if (walk.wanted(x))
    walk.give(x, {walk.add(node, ".dgrad", "conv2d", shape, node.dtype,
                           {{"x", dy.value}, {"w", turned(walk, node, w, p.cout, taps, p.cin)}})
                      .at(0),
                  dy.scale});
  Bindings of_w, of_bias;
  walk.write(node, "w", "y", of_w);
  if (p.bias) walk.write(node, "bias", "row_sums", of_bias);
  if (!of_w.empty()) {
    const auto dw = walk.add(node, ".wgrad", "conv2d_wgrad", fmt::format("{},scale={}", shape, dy.scale), node.dtype,
                             {{"x", dy.value}, {"dy", x}});
    turned(walk, node, dw.at(0), p.cin, taps, p.cout, of_w);
  }
  if (of_bias.empty()) return;
  constexpr std::int64_t kZeros = 8;  // columns, of what no op sums alone
  walk.add(node, ".bias", "gemm",
           fmt::format("m={},n={},k={},layout=tn,to=fp32,bias=0,scale={},row_sums=1", p.cout, kZeros, pixels, dy.scale),
           node.dtype, {{"a", dy.value}, {"b", walk.zeros({pixels, kZeros}, node.dtype)}}, of_bias);
}

}  // namespace

const AdjointRule conv_transpose2d_adjoint{"conv_transpose2d", nullptr, conv_transpose2d_backward};

}  // namespace noisefloor::networks
