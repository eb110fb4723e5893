#include "networks/graph.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "networks/lifetimes.h"

namespace noisefloor::networks {
namespace {

std::int64_t product(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace

std::int64_t WeightSource::all_rows() const {
  std::int64_t all = file.at(0);
  for (const Below& tensor : below) all += tensor.rows;
  return all;
}

std::vector<WeightSource::Below> WeightSource::tensors() const {
  std::vector<Below> all{{name, file.at(0)}};
  all.insert(all.end(), below.begin(), below.end());
  return all;
}

std::int64_t Value::elements() const {
  return product(shape);
}

std::vector<Node::Tensor> Node::tensors() const {
  std::vector<Tensor> all;
  for (const TensorSpec& spec : op->tensors(problem, dtype))
    all.push_back({spec.name, spec.role, values.at(all.size())});
  return all;
}

ValueId Node::value(std::string_view tensor) const {
  for (const Tensor& one : tensors())
    if (one.name == tensor) return one.value;
  throw std::logic_error(fmt::format("node {}: {} {} has no tensor {}", name, op->name, text, tensor));
}

ValueId Graph::input(std::string name, std::vector<std::int64_t> shape, DType dtype) {
  values_.push_back({std::move(name), std::move(shape), dtype, Value::Kind::input, {}, 0, {}});
  return values_.size() - 1;
}

ValueId Graph::state(std::string name, std::vector<std::int64_t> shape, DType dtype) {
  values_.push_back({std::move(name), std::move(shape), dtype, Value::Kind::state, {}, 0, {}});
  return values_.size() - 1;
}

ValueId Graph::weight(WeightSource source, std::vector<std::int64_t> shape, DType dtype) {
  const std::int64_t rows = source.rows == 0 ? source.all_rows() : source.rows;
  if (rows == source.all_rows()) source.rows = 0;  // all, said in one way
  if (product(shape) * source.file.at(0) != product(source.file) * rows)
    throw std::logic_error(
        fmt::format("weight {}: [{}] of [{}]", source.name, fmt::join(shape, ", "), fmt::join(source.file, ", ")));
  const std::string share = source.share ? fmt::format("{}{}", source.share->rest ? "1-" : "", source.share->of) : "";
  std::string names;
  for (const WeightSource::Below& tensor : source.tensors()) names += tensor.name + "|";
  if (!source.plus.empty() && (!source.below.empty() || source.share || source.sigmoid || source.times != 1))
    throw std::logic_error(fmt::format("weight {}: {} is added to a tensor as it is", source.name, source.plus));
  const std::string key = fmt::format("{}{}|{}|{}|{}|{}|{}|{}", names, static_cast<int>(source.layout), source.rows,
                                      to_string(dtype), share, source.sigmoid, source.times, source.plus);
  if (source.share) leave_unread(source.share->of, {1});  // by nodes: it is in the weights
  if (!source.plus.empty()) leave_unread(source.plus, source.file, dtype);
  const auto [place, added] = weights_.emplace(key, values_.size());
  if (added) {
    std::string name = source.name;
    values_.push_back({std::move(name), std::move(shape), dtype, Value::Kind::weight, std::move(source), 0, {}});
  }
  values_[place->second].kind = Value::Kind::weight;  // which a rewrite may have left unread
  return place->second;
}

void Graph::leave_unread(std::string name, std::vector<std::int64_t> shape, DType dtype) {
  if (weights_.emplace(name + "|unread", values_.size()).second)
    values_.push_back({name, shape, dtype, Value::Kind::unread, WeightSource{name, shape}, 0, {}});
}

ValueId Graph::constant(std::string name, std::vector<std::int64_t> shape, DType dtype, std::int64_t period) {
  const auto [place, added] = weights_.emplace(
      fmt::format("{}|constant|{}|{}", fmt::join(shape, ","), to_string(dtype), period), values_.size());
  if (added) values_.push_back({std::move(name), std::move(shape), dtype, Value::Kind::constant, {}, period, {}});
  values_[place->second].kind = Value::Kind::constant;
  return place->second;
}

ValueId Graph::part(ValueId of, std::string name, std::int64_t first, std::vector<std::int64_t> shape,
                    std::int64_t a_call) {
  const Value& all = values_.at(of);
  const bool moves = all.part && all.part->a_call != 0;
  const bool has_parts = all.kind == Value::Kind::activation || all.kind == Value::Kind::state;
  if (!has_parts || moves || first < 0 || first + product(shape) > all.elements())
    throw std::logic_error(fmt::format("part {}: elements {} to {} of {}, which has {}", name, first,
                                       first + product(shape), all.name, all.elements()));
  const Value::Part part{whole(of), first + (all.part ? all.part->first : 0), a_call};
  values_.push_back({std::move(name), std::move(shape), all.dtype, all.kind, {}, 0, part});
  return values_.size() - 1;
}

ValueId Graph::weight_part(ValueId of, WeightSource source, std::int64_t first, std::vector<std::int64_t> shape) {
  const ValueId id = part(of, source.name, first, std::move(shape));
  values_[id].source = std::move(source);
  return id;
}

ValueId Graph::of_the_call(ValueId of, std::int64_t calls) {
  if (calls == 0) return of;
  if (values_.at(of).shape.front() % calls != 0)
    throw std::logic_error(fmt::format("{} has {} rows, which {} calls do not share", values_.at(of).name,
                                       values_.at(of).shape.front(), calls));
  std::vector<std::int64_t> shape = values_.at(of).shape;
  shape.front() /= calls;
  const std::int64_t elements = product(shape);
  return part(of, values_.at(of).name, 0, std::move(shape), elements);
}

std::vector<ValueId> Graph::add(std::string name, std::string_view op_name, const std::string& text, DType dtype,
                                const Bindings& inputs, const Bindings& outputs) {
  const Op* op = find_op(op_name);
  if (op == nullptr) throw std::logic_error(fmt::format("node {}: there is no op {}", name, op_name));
  Node node{std::move(name), op, {}, {}, dtype, {}};
  try {
    node.problem = op->parse(text);
  } catch (const InvalidInput& error) {  // a batch beyond what the op takes
    throw InvalidInput(fmt::format("node {}: {} {}: {}", node.name, op_name, text, error.what()));
  }
  node.text = op->print(node.problem);
  std::vector<ValueId> written;
  std::size_t used = 0;
  for (const TensorSpec& spec : op->tensors(node.problem, dtype)) {
    const bool out = spec.role == Role::out;
    const Bindings& bindings = out ? outputs : inputs;
    const auto bound = bindings.find(spec.name);
    if (bound == bindings.end() && !out)
      throw std::logic_error(fmt::format("node {}: {} {} needs a tensor {}", node.name, op_name, node.text, spec.name));
    if (bound == bindings.end()) {
      values_.push_back({node.name + "." + spec.name, spec.shape, spec.dtype, Value::Kind::activation, {}, 0, {}});
      node.values.push_back(values_.size() - 1);
    } else {
      const Value& value = values_.at(bound->second);
      if (value.elements() != spec.elements() || value.dtype != spec.dtype)
        throw std::logic_error(fmt::format("node {}: {} {} takes {} {} [{}], not {} {} [{}]", node.name, op_name,
                                           node.text, spec.name, to_string(spec.dtype), fmt::join(spec.shape, ", "),
                                           value.name, to_string(value.dtype), fmt::join(value.shape, ", ")));
      node.values.push_back(bound->second);
      ++used;
    }
    if (out) written.push_back(node.values.back());
  }
  if (used != inputs.size() + outputs.size())
    throw std::logic_error(
        fmt::format("node {}: {} {} has no tensor for one of its bindings", node.name, op_name, node.text));
  nodes_.push_back(std::move(node));
  return written;
}

std::map<std::string, std::vector<std::int64_t>, std::less<>> checkpoint_of(const Graph& graph) {
  std::map<std::string, std::vector<std::int64_t>, std::less<>> tensors;
  for (const Value& value : graph.values())
    if (value.source)
      for (const auto& [name, rows] : value.source->tensors()) {
        tensors[name] = value.source->file;
        tensors[name].front() = rows;
      }
  return tensors;
}

void add_to(std::vector<CountedProblem>& counted, const CountedProblem& one) {
  const auto known = std::ranges::find_if(counted, [&](const CountedProblem& entry) {
    return entry.op == one.op && entry.text == one.text && entry.dtype == one.dtype;
  });
  if (known == counted.end()) return counted.push_back(one);
  known->count += one.count;
  known->weights &= one.weights;
  known->written_weights |= one.written_weights;
}

std::vector<CountedProblem> count_problems(const Graph& graph) {
  std::vector<CountedProblem> counted;
  for (const Node& node : graph.nodes())
    add_to(counted, {node.op, node.text, node.dtype, 1, weights_of(graph, node), reads_written_weights(graph, node)});
  return counted;
}

}  // namespace noisefloor::networks
