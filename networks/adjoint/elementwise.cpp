// Of pointwise operations and changes of layout.
#include "kernels/elementwise/elementwise.h"

#include <fmt/format.h>

#include "networks/backward.h"

namespace noisefloor::networks {
namespace {

void elementwise_backward(const Node& node, Backward& walk) {
  using enum elementwise::Operation;
  const auto& p = node.problem.as<elementwise::Problem>();
  const Gradient dy = walk.of(node.value("y"));
  const std::string sizes = fmt::format(",n={},hw={},channels={}", p.n, p.hw, p.channels);
  const auto copy = [&](const std::string& op, DType dtype) {  // which moves data, as the node does
    walk.give(node.value("x"),
              {walk.add(node, ".backward", "elementwise", op + sizes, dtype, {{"x", dy.value}}).at(0), dy.scale});
  };
  const auto derived = [&](const char* op) {
    const Bindings inputs{{"x", node.value("x")}, {"dy", dy.value}};
    walk.give(node.value("x"),
              {walk.add(node, ".backward", "elementwise", op + sizes, node.dtype, inputs).at(0), dy.scale});
  };
  switch (p.op) {
    case add:
      for (const char* term : {"a", "b"}) walk.give(node.value(term), {dy.value, dy.scale * p.scale});
      return;
    case scale:
      return walk.give(node.value("x"), {dy.value, dy.scale * p.scale});
    case relu:
      return derived("op=relu_backward");
    case silu:
      return derived("op=silu_backward");
    case geglu:
      return derived("op=geglu_backward");
    case cast:
      return copy(fmt::format("op=cast,to={}", to_string(node.dtype)), p.output_dtype(node.dtype));
    case nchw_to_nhwc:
      return copy("op=nhwc_to_nchw", node.dtype);
    case nhwc_to_nchw:
      return copy("op=nchw_to_nhwc", node.dtype);
    default:
      Backward::refuse(node, "there is no gradient of the operation yet");
  }
}

}  // namespace

const AdjointRule elementwise_adjoint{"elementwise", nullptr, elementwise_backward};

}  // namespace noisefloor::networks
