// Of attention, from its output and the log-sum-exp of each row, which the forward pass leaves.
#include "kernels/attention/attention.h"

#include "networks/backward.h"

namespace noisefloor::networks {
namespace {

std::vector<ValueId> attention_forward(const Node& node, const Bindings& inputs, Graph& graph) {
  attention::Problem p = node.problem.as<attention::Problem>();
  p.lse = true;
  return graph.add(node.name, "attention", node.op->print(AnyProblem(p)), node.dtype, inputs);
}

void attention_backward(const Node& node, Backward& walk) {
  attention::Problem p = node.problem.as<attention::Problem>();
  p.lse = false;
  const Gradient dout = walk.of(node.value("out"));
  Bindings inputs{{"o", node.value("out")}, {"lse", node.value("lse")}, {"dout", dout.value}};
  for (const Node::Tensor& tensor : node.tensors())
    if (tensor.role == Role::in) inputs[tensor.name] = tensor.value;
  walk.add(node, ".backward", "attention_backward", node.op->print(AnyProblem(p)), node.dtype, inputs);
  const Node& added = walk.graph().nodes().back();
  for (const Node::Tensor& tensor : node.tensors())
    if (tensor.role == Role::in) walk.give(tensor.value, {added.value("d" + tensor.name), dout.scale});
}

}  // namespace

const AdjointRule attention_adjoint{"attention", attention_forward, attention_backward};

}  // namespace noisefloor::networks
