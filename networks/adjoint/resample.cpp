// Of changes of resolution, each the other's with a factor, and of the concatenation and its split.
#include "kernels/resample/resample.h"

#include <fmt/format.h>

#include "networks/backward.h"

namespace noisefloor::networks {
namespace {

void resample_backward(const Node& node, Backward& walk) {
  using enum resample::Operation;
  const auto& p = node.problem.as<resample::Problem>();
  const std::string sizes = fmt::format("n={},h={},w={},", p.n, p.out_h(), p.out_w());
  if (p.op == nearest_up2 || p.op == average_down2) {
    const bool up = p.op == nearest_up2;
    const Gradient dy = walk.of(node.value("y"));
    const std::string problem = fmt::format("op={},{}channels={},scale={}", up ? "average_down2" : "nearest_up2", sizes,
                                            p.channels, dy.scale * p.scale * (up ? 4 : 0.25));
    walk.give(node.value("x"), {walk.add(node, ".backward", "resample", problem, node.dtype, {{"x", dy.value}}).at(0)});
    return;
  }
  const std::string channels = fmt::format("{}channels={},skip_channels={}", sizes, p.channels, p.skip_channels);
  if (p.op == concat) {
    const Gradient dy = walk.of(node.value("y"));
    const auto parts = walk.add(node, ".backward", "resample", "op=split," + channels, node.dtype, {{"x", dy.value}});
    walk.give(node.value("x"), {parts.at(0), dy.scale});
    walk.give(node.value("skip"), {parts.at(1), dy.scale});
    return;
  }
  // Of a split of which one part leads nowhere, that one's is zero.
  Bindings parts;
  for (const auto& [part, input] : {std::pair("y", "x"), std::pair("skip", "skip")})
    parts[input] = walk.find(node.value(part)) ? walk.unscaled(node, part)
                                               : walk.zeros(walk.graph()[node.value(part)].shape, node.dtype);
  walk.give(node.value("x"),
            {walk.add(node, ".backward", "resample", "op=concat," + channels, node.dtype, parts).at(0)});
}

}  // namespace

const AdjointRule resample_adjoint{"resample", nullptr, resample_backward};

}  // namespace noisefloor::networks
