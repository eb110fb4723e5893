// A network's graph built anew, node by node: what passes over graphs share.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "networks/network.h"

namespace noisefloor::networks {

class GraphCopy {
 public:
  // Of all inputs, and of what is not read; `from` must outlive it.
  explicit GraphCopy(const Graph& from);

  const Graph& from() const { return from_; }
  Graph& to() { return to_; }

  // Where a value of `from` is: an output of a node that was added, else a weight, a constant or a part, made now.
  ValueId take(ValueId id);
  ValueId moved(ValueId id) const { return moved_.at(id).value(); }
  void move(ValueId id, ValueId to) { moved_.at(id) = to; }

  // A node's input tensors by name, taken; in the place of some, other values of `from`.
  std::map<std::string, ValueId> inputs_of(const Node& node, const std::map<std::string, ValueId>& others = {});
  // The node with another problem of its op and these inputs. Outputs that `node` has too are moved; gives all by name.
  std::map<std::string, ValueId> add(const Node& node, const AnyProblem& problem,
                                     const std::map<std::string, ValueId>& inputs);
  void copy(const Node& node) { add(node, node.problem, inputs_of(node)); }

  // Gives the graph to `network`, whose inputs and outputs are those of `from`.
  void finish(Network& network);

 private:
  const Graph& from_;
  Graph to_;
  std::vector<std::optional<ValueId>> moved_;
};

}  // namespace noisefloor::networks
