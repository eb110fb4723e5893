// Of EDM's preconditioning: what a network gives is scaled. Its input is not trained.
#include "kernels/edm_precondition/edm_precondition.h"

#include <fmt/format.h>

#include "networks/backward.h"

namespace noisefloor::networks {
namespace {

void edm_precondition_backward(const Node& node, Backward& walk) {
  const auto& p = node.problem.as<edm_precondition::Problem>();
  if (walk.wanted(node.value("x"))) Backward::refuse(node, "its image would be trained");
  const Gradient dd = walk.of(node.value("d"));
  const auto df =
      walk.add(node, ".backward", "edm_precondition",
               fmt::format("side=gradient,batch={},elements={},sigma_data={}", p.batch, p.elements, p.sigma_data),
               node.dtype, {{"dd", dd.value}, {"sigma", node.value("sigma")}});
  walk.give(node.value("f"), {df.at(0), dd.scale});
}

}  // namespace

const AdjointRule edm_precondition_adjoint{"edm_precondition", nullptr, edm_precondition_backward};

}  // namespace noisefloor::networks
