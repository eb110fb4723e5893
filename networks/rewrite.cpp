#include "networks/rewrite.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace noisefloor::networks {

Rewrite::Rewrite(Network& network, Runs runs) : network_(network), runs_(std::move(runs)) {
  for (Node& node : network_.graph.nodes_) enter(node, standing_.size());
  for (const NetworkTensor& output : network_.outputs)
    uses_[graph().whole(output.value)].push_back({nullptr, output.name, output.value});
}

std::vector<Node*> Rewrite::in_order() const {
  std::vector<Node*> nodes;
  for (const Node& node : graph().nodes())
    if (const auto found = standing_.find(&node); found != standing_.end()) nodes.push_back(found->second.node);
  std::ranges::stable_sort(nodes, {}, [&](const Node* node) { return standing_.at(node).place; });
  return nodes;
}

void Rewrite::each(std::string_view op, const std::function<void(const Node&)>& visit) const {
  for (const Node* node : in_order())
    if (node->op->name == op && standing_.contains(node)) visit(*node);
}

const Node* Rewrite::writer(ValueId id) const {
  const auto found = writers_.find(id);
  return found == writers_.end() ? nullptr : found->second;
}

const std::vector<Rewrite::Use>& Rewrite::uses(ValueId id) const {
  static const std::vector<Use> kNone;
  const auto found = uses_.find(id);
  return found == uses_.end() ? kNone : found->second;
}

bool Rewrite::runs_before(const Node& node, const Node& other) const {
  return standing_.at(&node).place < standing_.at(&other).place;
}

void Rewrite::enter(Node& node, std::size_t place) {
  standing_[&node] = {&node, place};
  for (const Node::Tensor& tensor : node.tensors()) {
    if (tensor.role != Role::in) writers_[tensor.value] = &node;
    if (tensor.role != Role::out) uses_[graph().whole(tensor.value)].push_back({&node, tensor.name, tensor.value});
  }
}

const Node& Rewrite::add(const Node& place, const std::string& name, const AnyProblem& problem,
                         const Bindings& inputs) {
  graph().add(name, place.op->name, place.op->print(problem), place.dtype, inputs);
  Node& added = graph().nodes_.back();
  enter(added, standing_.at(&place).place);
  return added;
}

const Node& Rewrite::repeat(const Node& node, const Node& before, const Bindings& inputs) {
  graph().add(node.name + ".again", node.op->name, node.text, node.dtype, inputs);
  Node& added = graph().nodes_.back();
  enter(added, standing_.at(&before).place);
  return added;
}

void Rewrite::reread(const Node& reader, ValueId from, ValueId to) {
  std::ranges::replace(standing_.at(&reader).node->values, from, to);
  std::vector<Use>& uses = uses_[from];
  for (Use& use : uses)
    if (use.node == &reader) uses_[to].push_back({use.node, use.tensor, to});
  std::erase_if(uses, [&](const Use& use) { return use.node == &reader; });
}

const Node& Rewrite::replace(Change change) {
  auto& [at, problem, inputs] = change;
  const Node& node = *at;
  Bindings outputs;
  for (const Node::Tensor& tensor : node.tensors())
    (tensor.role == Role::out ? outputs : inputs).insert({tensor.name, tensor.value});
  const auto specs = node.op->tensors(problem, node.dtype);
  std::erase_if(inputs, [&](const auto& input) {
    return std::ranges::none_of(specs, [&](const TensorSpec& spec) { return spec.name == input.first; });
  });
  const Node& added = add(node, node.name, problem, inputs);
  for (const Node::Tensor& tensor : added.tensors())
    if (const auto before = outputs.find(tensor.name); tensor.role == Role::out && before != outputs.end())
      redirect(before->second, tensor.value);
  return added;
}

void Rewrite::replace_if_they_run(const std::vector<Change>& changes) {
  if (std::ranges::all_of(changes, [&](const Change& change) { return runs(change); }))
    for (const Change& change : changes) replace(change);
}

void Rewrite::redirect(ValueId from, ValueId to) {
  std::vector<Value>& values = graph().values_;
  for (Value& value : values)
    if (value.part && value.part->of == from) {
      value.part->of = graph().whole(to);
      if (values[to].part) value.part->first += values[to].part->first;
    }
  for (Use& use : uses_[from]) {
    if (use.value == from) {
      if (use.node != nullptr) std::ranges::replace(standing_.at(use.node).node->values, from, to);
      use.value = to;
    }
    uses_[graph().whole(to)].push_back(use);
  }
  uses_.erase(from);
  for (NetworkTensor& output : network_.outputs)
    if (output.value == from) output.value = to;
  std::ranges::replace(network_.below, from, to);
  if (network_.kept == from) network_.kept = to;
  if (const Node* node = writer(from)) drop_if_unread(*node);
}

void Rewrite::drop_if_unread(const Node& node) {
  const auto tensors = node.tensors();
  const bool read = std::ranges::any_of(tensors, [&](const Node::Tensor& tensor) {
    return tensor.role == Role::inout || (tensor.role == Role::out && !uses(tensor.value).empty());
  });
  if (read || standing_.erase(&node) == 0) return;
  for (const Node::Tensor& tensor : tensors) {
    const ValueId whole = graph().whole(tensor.value);
    if (tensor.role == Role::out) continue;
    std::erase_if(uses_[whole], [&](const Use& use) { return use.node == &node; });
    if (const Node* before = writer(whole)) drop_if_unread(*before);
  }
}

void Rewrite::finish() {
  Graph& graph = network_.graph;
  std::vector<bool> known(graph.values_.size());  // activations that are written, and what else is read
  const auto read = [&](const std::string& reader, ValueId id) {
    const ValueId whole = graph.whole(id);
    if (graph[whole].kind == Value::Kind::activation && !known[whole])
      throw std::logic_error(fmt::format("{} reads {}, which nothing before it writes", reader, graph[whole].name));
    known[whole] = true;
  };
  std::deque<Node> nodes;
  for (Node* node : in_order()) {
    for (const Node::Tensor& tensor : node->tensors()) {
      if (tensor.role != Role::out) read("node " + node->name, tensor.value);
      known[tensor.value] = true;
    }
    nodes.push_back(std::move(*node));
  }
  for (const NetworkTensor& output : network_.outputs) read(output.name, output.value);
  for (const ValueId value : network_.below) read("a shallow call", value);
  for (ValueId id = 0; id < known.size(); ++id)
    if (Value& value = graph.values_[id];
        !known[id] && (value.kind == Value::Kind::weight || value.kind == Value::Kind::constant))
      value.kind = Value::Kind::unread;
  graph.nodes_ = std::move(nodes);
}

bool runs_on_sm90a(const Op& op, const AnyProblem& problem, DType dtype) {
  return std::ranges::any_of(op.variants, [&](const AnyVariant& variant) {
    return variant.kind == Kind::ptx && variant.arch == Arch::sm90a && variant.can_run(problem, dtype);
  });
}

void fuse(Network& network, const Fusions& fusions) {
  Rewrite rewrite(network, fusions.runs);
  if (fusions.merge_products) merge_products(rewrite);
  if (fusions.fold_skips) {
    fold_skips(rewrite);
    halve_in_norms(rewrite);
  }
  if (fusions.fuse_norms) fuse_norms(rewrite, *fusions.fuse_norms);
  rewrite.finish();
}

}  // namespace noisefloor::networks
