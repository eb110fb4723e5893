#include "networks/graph_copy.h"

namespace noisefloor::networks {

GraphCopy::GraphCopy(const Graph& from) : from_(from), moved_(from.values().size()) {
  for (ValueId id = 0; id < moved_.size(); ++id) {
    const Value& value = from_[id];
    if (value.kind == Value::Kind::input) moved_[id] = to_.input(value.name, value.shape, value.dtype);
    if (value.kind == Value::Kind::unread) to_.leave_unread(value.name, value.shape, value.dtype);
  }
}

ValueId GraphCopy::take(ValueId id) {
  const Value& value = from_[id];
  if (!moved_[id] && value.part)
    moved_[id] = to_.part(moved(value.part->of), value.name, value.part->first, value.shape, value.part->a_call);
  if (!moved_[id] && value.kind == Value::Kind::weight)
    moved_[id] = to_.weight(*value.source, value.shape, value.dtype);
  if (!moved_[id]) moved_[id] = to_.constant(value.name, value.shape, value.dtype, value.period);
  return *moved_[id];
}

std::map<std::string, ValueId> GraphCopy::inputs_of(const Node& node, const std::map<std::string, ValueId>& others) {
  std::map<std::string, ValueId> inputs;
  const auto specs = node.op->tensors(node.problem, node.dtype);
  for (std::size_t i = 0; i < specs.size(); ++i)
    if (specs[i].role != Role::out) {
      const auto other = others.find(specs[i].name);
      inputs[specs[i].name] = take(other == others.end() ? node.values[i] : other->second);
    }
  return inputs;
}

std::map<std::string, ValueId> GraphCopy::add(const Node& node, const AnyProblem& problem,
                                              const std::map<std::string, ValueId>& inputs) {
  const auto added = to_.add(node.name, node.op->name, node.op->print(problem), node.dtype, inputs);
  std::map<std::string, ValueId> outputs;
  std::size_t next = 0;
  for (const TensorSpec& spec : node.op->tensors(problem, node.dtype))
    if (spec.role == Role::out) outputs[spec.name] = added.at(next++);
  const auto before = node.op->tensors(node.problem, node.dtype);
  for (std::size_t i = 0; i < before.size(); ++i)
    if (const auto now = outputs.find(before[i].name); before[i].role == Role::out && now != outputs.end())
      moved_[node.values[i]] = now->second;
  return outputs;
}

void GraphCopy::finish(Network& network) {
  for (auto* tensors : {&network.inputs, &network.outputs})
    for (NetworkTensor& tensor : *tensors) tensor.value = moved(tensor.value);
  for (ValueId& value : network.below) value = moved(value);
  network.graph = std::move(to_);
}

}  // namespace noisefloor::networks
