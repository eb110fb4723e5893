// Of attention, from its output and the log-sum-exp of each row, which the forward pass leaves.
#include "kernels/attention/attention.h"

#include <fmt/format.h>

#include "kernels/temporal_attention/temporal_attention.h"
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

// Along frames: attention over them, of each pixel's heads as heads of their own. Packed ones lie as that takes them if
// a pixel's are together; else queries, keys and values are split.
std::vector<ValueId> temporal_attention_forward(const Node& node, const Bindings& inputs, Graph& graph) {
  using attention::Layout;
  const auto& p = node.problem.as<temporal_attention::Problem>();
  Layout layout = p.layout == Layout::packed_3hd && p.heads == 1 ? Layout::packed_h3d : p.layout;
  Bindings read = inputs;
  if (layout == Layout::packed_3hd) {
    const std::int64_t channels = p.heads * p.dim;
    const auto split = [&](const char* suffix, ValueId x, std::int64_t rest) {
      return graph.add(
          node.name + suffix, "resample",
          fmt::format("op=split,n={},h={},w={},channels={},skip_channels={}", p.batch, p.frames, p.hw, channels, rest),
          node.dtype, {{"x", x}});
    };
    const auto of_q = split(".split_q", inputs.at("qkv"), 2 * channels), of_k = split(".split_k", of_q.at(1), channels);
    read = {{"q", of_q.at(0)}, {"k", of_k.at(0)}, {"v", of_k.at(1)}};
    layout = Layout::separate;
  }
  return graph.add(
      node.name, "attention",
      fmt::format("batch={},heads={},seq_q={},seq_kv={},dim={},layout={},scale={},lse=1", p.batch, p.hw * p.heads,
                  p.frames, p.frames, p.dim, attention::kLayoutNames[static_cast<int>(layout)], p.scale),
      node.dtype, read);
}

}  // namespace

const AdjointRule attention_adjoint{"attention", attention_forward, attention_backward};
const AdjointRule temporal_attention_adjoint{"temporal_attention", temporal_attention_forward, nullptr};

}  // namespace noisefloor::networks
