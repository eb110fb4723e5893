// Of a convolution: of its input and of its weights, each an op; dgrad takes the input's gradient so far as a residual.
// One along frames is of images whose rows are frames, by a kernel of one column.
#include "kernels/conv2d/conv2d.h"

#include <fmt/format.h>

#include "kernels/conv3d_temporal/conv3d_temporal.h"
#include "networks/backward.h"

namespace noisefloor::networks {
namespace {

// `dy`: of the sums, and of a residual. `shape`: the fields of either gradient's problem.
template <class P>
void give_gradients(const Node& node, Backward& walk, const P& p, const Gradient& dy, std::string shape) {
  if (p.residual) walk.give(node.value("residual"), dy);
  shape += fmt::format(",cin={},cout={},scale={}", p.cin, p.cout, dy.scale);
  const ValueId x = node.value("x"), w = node.value("w");
  if (walk.wanted(x)) {
    std::string problem = shape;
    Bindings inputs{{"dy", dy.value}, {"weight", w}};
    walk.chain(x, problem, inputs);
    walk.give(x, {walk.add(node, ".dgrad", "conv2d_dgrad", problem, node.dtype, inputs).at(0)});
  }
  Bindings written;
  walk.write(node, "w", "dw", written);
  if (p.bias) walk.write(node, "bias", "dbias", written);
  const bool shifted = p.image_shift && walk.wanted(node.value("image_shift"));
  if (written.empty() && !shifted) return;
  const auto outputs =
      walk.add(node, ".wgrad", "conv2d_wgrad", fmt::format("{},bias={:d},image_shift={:d}", shape, p.bias, shifted),
               node.dtype, {{"x", x}, {"dy", dy.value}}, written);
  if (shifted) walk.give(node.value("image_shift"), {outputs.back()});
}

void conv2d_backward(const Node& node, Backward& walk) {
  const auto& p = node.problem.as<conv2d::Problem>();
  const bool relu = p.act == conv2d::Activation::relu;
  if (p.norm != conv2d::Norm::none || p.affine || p.side > 0 || p.residual_upsample || p.stats ||
      p.act == conv2d::Activation::silu || (relu && (p.residual || p.gain != 1)))
    Backward::refuse(node, "it is fused with what stands before or behind it");
  Gradient dy = relu ? walk.before_relu(node) : walk.of(node.value("y"));
  dy.scale *= p.gain;
  give_gradients(node, walk, p, dy,
                 fmt::format("n={},h={},w={},kernel={},stride={},pad={},upsample={:d}", p.n, p.h, p.w, p.kernel,
                             p.stride, p.pad, p.upsample));
}

void conv3d_temporal_backward(const Node& node, Backward& walk) {
  const auto& p = node.problem.as<conv3d_temporal::Problem>();
  give_gradients(node, walk, p, walk.of(node.value("y")),
                 fmt::format("n={},h={},w={},column=1", p.batch, p.frames, p.hw));
}

}  // namespace

const AdjointRule conv2d_adjoint{"conv2d", nullptr, conv2d_backward};
const AdjointRule conv3d_temporal_adjoint{"conv3d_temporal", nullptr, conv3d_temporal_backward};

}  // namespace noisefloor::networks
