// Of a norm: of its input, whose gradient so far is a residual, and of all that scales and shifts.
#include "kernels/groupnorm/groupnorm.h"

#include <fmt/format.h>

#include "networks/backward.h"

namespace noisefloor::networks {
namespace {

// Which leaves mean and rstd, and whose gain and shift may be what a training keeps in fp32.
std::vector<ValueId> groupnorm_forward(const Node& node, const Bindings& inputs, Graph& graph) {
  groupnorm::Problem p = node.problem.as<groupnorm::Problem>();
  p.fp32_affine = graph[inputs.at("gamma")].dtype != node.dtype;
  p.stats = true;
  return graph.add(node.name, "groupnorm", node.op->print(AnyProblem(p)), node.dtype, inputs);
}

void groupnorm_backward(const Node& node, Backward& walk) {
  const auto& p = node.problem.as<groupnorm::Problem>();
  if (p.given() || p.coefficients || p.skip_channels > 0 || p.down())
    Backward::refuse(node, "it is fused with what stands before or behind it");
  const ValueId x = node.value("x");
  std::string problem;  // the same fields
  for (const KeyValue& field : split_problem_text(node.text))
    if (field.key != "stats" && field.key != "eps")
      problem += fmt::format("{}{}={}", problem.empty() ? "" : ",", field.key, field.value);
  Bindings inputs{{"x", x},
                  {"dy", walk.unscaled(node, "y")},
                  {"gamma", node.value("gamma")},
                  {"beta", node.value("beta")},
                  {"mean", node.value("mean")},
                  {"rstd", node.value("rstd")}};
  std::vector<const char*> shifts;
  if (p.scale_shift()) shifts = p.packed ? std::vector{"scale_shift"} : std::vector{"scale", "shift"};
  for (const char* shift : shifts) inputs[shift] = node.value(shift);
  walk.chain(x, problem, inputs);
  Bindings written;
  walk.write(node, "gamma", "dgamma", written);
  walk.write(node, "beta", "dbeta", written);
  walk.add(node, ".backward", "groupnorm_backward", problem, node.dtype, inputs, written);
  const Node& added = walk.graph().nodes().back();
  walk.give(x, {added.value("dx")});
  for (const char* shift : shifts) walk.give(node.value(shift), {added.value(fmt::format("d{}", shift))});
}

}  // namespace

const AdjointRule groupnorm_adjoint{"groupnorm", groupnorm_forward, groupnorm_backward};

}  // namespace noisefloor::networks
