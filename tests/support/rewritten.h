// What tests of rewrites ask of a graph (networks/rewrite.h), and what they make graphs of.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "networks/rewrite.h"

namespace noisefloor::networks {

using Names = std::vector<std::string>;

inline bool anything(const Op&, const AnyProblem&, DType) {
  return true;
}
inline bool nothing(const Op&, const AnyProblem&, DType) {
  return false;
}

// Every norm that convolutions can do.
inline const NormFusion kEveryNorm{.least_bytes = 0, .most_outputs = 1 << 20, .pays = {}};

inline Names names_of(const Network& network) {
  Names names;
  for (const Node& node : network.graph.nodes()) names.push_back(node.name);
  return names;
}

inline std::map<std::string, int> ops_of(const Graph& graph) {
  std::map<std::string, int> ops;
  for (const Node& node : graph.nodes()) ++ops[node.op->name];
  return ops;
}

inline const Node& node_of(const Network& network, const std::string& name) {
  for (const Node& node : network.graph.nodes())
    if (node.name == name) return node;
  throw std::out_of_range("no node " + name);
}

// The value that a node reads or writes under a tensor's name.
inline const Value& tensor_of(const Network& network, const std::string& node, const std::string& tensor) {
  return network.graph[node_of(network, node).value(tensor)];
}

// A network of fp32, node by node.
struct Handmade {
  Network network = {};

  ValueId input(const char* name, std::vector<std::int64_t> shape) {
    return network.take(name, NetworkTensor::Kind::conditioning, std::move(shape), DType::fp32);
  }
  ValueId weight(const std::string& name, std::vector<std::int64_t> shape) {
    return network.graph.weight({name, shape}, shape, DType::fp32);
  }
  ValueId add(const std::string& name, const char* op, const std::string& problem, const Bindings& inputs) {
    return network.graph.add(name, op, problem, DType::fp32, inputs).at(0);
  }
  void give(const char* name, ValueId value) { network.give(name, value, network.graph[value].shape); }
  // SiLU of a value, which is given.
  void give_silu(const char* name, ValueId value) {
    const std::string elements = std::to_string(network.graph[value].elements());
    give(name, add(name, "elementwise", "op=silu,hw=1,channels=" + elements, {{"x", value}}));
  }
};

}  // namespace noisefloor::networks
