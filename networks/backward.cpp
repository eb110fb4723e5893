#include "networks/backward.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "kernels/core/fields.h"

namespace noisefloor::networks {

const AdjointRule* find_adjoint(std::string_view op) {
  for (const AdjointRule* rule : {&attention_adjoint, &conv2d_adjoint, &conv3d_temporal_adjoint,
                                  &conv_transpose2d_adjoint, &edm_precondition_adjoint, &elementwise_adjoint,
                                  &gemm_adjoint, &groupnorm_adjoint, &resample_adjoint, &temporal_attention_adjoint})
    if (op == rule->op) return rule;
  return nullptr;
}

namespace {

std::string pointwise(const Value& value, const char* op, double scale) {
  const std::int64_t channels = value.shape.back();
  return fmt::format("op={},n=1,hw={},channels={},scale={}", op, value.elements() / channels, channels, scale);
}

}  // namespace

Backward::Backward(Graph& graph, const std::map<ValueId, ValueId>& gradients)
    : graph_(&graph), gradients_(&gradients), wanted_(graph.values().size()) {
  for (const auto& [parameter, gradient] : gradients) wanted_[graph.whole(parameter)] = true;
  for (const Node& node : graph.nodes()) {
    if (!std::ranges::any_of(node.values, [&](ValueId id) { return wanted(id); })) continue;
    for (const Node::Tensor& tensor : node.tensors())
      if (tensor.role != Role::in) wanted_[graph.whole(tensor.value)] = true;
  }
}

void Backward::run(ValueId of, ValueId gradient) {
  give(of, {gradient});
  for (std::size_t i = graph_->nodes().size(); i-- > 0;) {
    const Node& node = graph_->nodes()[i];
    const auto tensors = node.tensors();
    const bool reached = std::ranges::any_of(
        tensors, [&](const Node::Tensor& tensor) { return tensor.role != Role::in && known_.contains(tensor.value); });
    if (!reached) continue;
    const AdjointRule* rule = find_adjoint(node.op->name);
    if (rule == nullptr || rule->backward == nullptr) refuse(node, "there is no gradient of the op yet");
    rule->backward(node, *this);
    for (const Node::Tensor& tensor : tensors)
      if (tensor.role != Role::in) known_.erase(tensor.value);
  }
  for (const auto& [parameter, place] : *gradients_)
    if (!written_.contains(place))
      throw std::logic_error(fmt::format("nothing writes the gradient of {}", (*graph_)[parameter].name));
}

std::optional<Gradient> Backward::find(ValueId id) const {
  const auto found = known_.find(id);
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

ValueId Backward::unscaled(const Node& node, std::string_view output) {
  Gradient& gradient = known_.at(node.value(output));
  if (gradient.scale != 1) {
    const Value& value = (*graph_)[gradient.value];
    const auto scaled = add(node, ".scaled", "elementwise", pointwise(value, "scale", gradient.scale), value.dtype,
                            {{"x", gradient.value}});
    gradient = {scaled.at(0)};
  }
  return gradient.value;
}

ValueId Backward::zeros(std::vector<std::int64_t> shape, DType dtype) {
  return graph_->constant("zeros", std::move(shape), dtype, 1);
}

Gradient Backward::before_relu(const Node& node) {
  const ValueId y = node.value("y");
  const Gradient dy = of(y);
  const Value& value = (*graph_)[y];
  const std::int64_t channels = value.shape.back();
  const std::string problem =
      fmt::format("op=relu_backward,n=1,hw={},channels={}", value.elements() / channels, channels);
  return {add(node, ".relu", "elementwise", problem, value.dtype, {{"x", y}, {"dy", dy.value}}).at(0), dy.scale};
}

void Backward::give(ValueId id, const Gradient& gradient) {
  if (!wanted(id)) return;
  const Value& value = (*graph_)[id];
  if (value.part)
    throw InvalidInput(
        fmt::format("{}, a part of {}: there is no gradient of parts", value.name, (*graph_)[value.part->of].name));
  const auto [place, first] = known_.emplace(id, gradient);
  if (first) return;
  Gradient& sum = place->second;
  // Two factors that differ cost a pass.
  const DType dtype = value.dtype;
  const std::string name = value.name;
  Gradient other = gradient;
  if (other.scale != sum.scale) {
    const std::string problem = pointwise(value, "scale", other.scale / sum.scale);
    other.value = graph_->add(name + ".scaled", "elementwise", problem, dtype, {{"x", other.value}}).at(0);
  }
  const std::string problem = pointwise((*graph_)[id], "add", 1);
  sum.value = graph_->add(name + ".sum", "elementwise", problem, dtype, {{"a", sum.value}, {"b", other.value}}).at(0);
}

std::optional<Gradient> Backward::take(ValueId id) {
  const std::optional<Gradient> gradient = find(id);
  known_.erase(id);
  return gradient;
}

void Backward::chain(ValueId id, std::string& problem, Bindings& inputs) {
  const std::optional<Gradient> so_far = take(id);
  if (!so_far) return;
  problem += fmt::format(",residual=1,residual_scale={}", so_far->scale);
  inputs["residual"] = so_far->value;
}

std::vector<ValueId> Backward::add(const Node& node, std::string_view suffix, std::string_view op,
                                   const std::string& problem, DType dtype, const Bindings& inputs,
                                   const Bindings& outputs) {
  return graph_->add(fmt::format("{}{}", node.name, suffix), op, problem, dtype, inputs, outputs);
}

void Backward::write(const Node& node, std::string_view tensor, const std::string& output, Bindings& outputs) {
  const auto place = gradients_->find(node.value(tensor));
  if (place == gradients_->end()) return;
  if (!written_.insert(place->second).second)
    refuse(node, fmt::format("another node reads its {} too, and gradients of parameters are not summed", tensor));
  outputs[output] = place->second;
}

void Backward::refuse(const Node& node, std::string_view why) {
  throw InvalidInput(fmt::format("node {} ({} {}) cannot be trained: {}", node.name, node.op->name, node.text, why));
}

}  // namespace noisefloor::networks
