// The gradients of what is trained: behind a list of nodes, in reverse, those that each op's rule adds (adjoint/).
// There is no tape: the longer list is run as any other.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "networks/graph.h"

namespace noisefloor::networks {

class Backward;

// What training asks of an op.
struct AdjointRule {
  const char* op;
  // Adds, behind a graph, what its node `node` computes with other inputs, so that the backward pass finds what it
  // reads: values before activations, log-sum-exps. Returns the outputs in the node's order. Null: the node itself.
  std::vector<ValueId> (*forward)(const Node& node, const Bindings& inputs, Graph& graph);
  // Adds the gradients of what the node reads. Null: `forward` has no such node.
  void (*backward)(const Node& node, Backward& walk);
};
// Each in the file of its op in adjoint/. A new one is a name here and in find_adjoint.
extern const AdjointRule attention_adjoint, conv2d_adjoint, conv3d_temporal_adjoint, conv_transpose2d_adjoint,
    edm_precondition_adjoint, elementwise_adjoint, gemm_adjoint, groupnorm_adjoint, resample_adjoint,
    temporal_attention_adjoint;
const AdjointRule* find_adjoint(std::string_view op);  // null: the op has none

// The elements of a value times a factor, which is carried along until a node takes it.
struct Gradient {
  ValueId value;
  double scale = 1;
};

class Backward {
 public:
  // `gradients`: where the gradient of each parameter, a value that the graph's nodes read, is to be written.
  Backward(Graph& graph, const std::map<ValueId, ValueId>& gradients);

  // Adds the gradients of all parameters, given that of `of`, which a node of the graph writes. Throws InvalidInput
  // that names the node which cannot be differentiated.
  void run(ValueId of, ValueId gradient);

  // ---- For rules. A value with several readers has a gradient for each: their sum is passed from one to the next.

  const Graph& graph() const { return *graph_; }
  bool wanted(ValueId of) const { return wanted_.at(graph_->whole(of)); }  // whether a parameter stands behind it
  // The sum so far; of an output of the node whose turn it is, the whole one.
  const Gradient& of(ValueId id) const { return known_.at(id); }
  std::optional<Gradient> find(ValueId id) const;
  ValueId unscaled(const Node& node, std::string_view output);  // of an output, with the factor multiplied in
  ValueId zeros(std::vector<std::int64_t> shape, DType dtype);
  // Of y = relu(sums), which the node writes: of the sums, as y tells where they are above 0.
  Gradient before_relu(const Node& node);
  // Adds one more to the gradient of a value; of one that is not wanted, nothing.
  void give(ValueId id, const Gradient& gradient);
  // The sum so far as the residual of the node that adds to it, whose output is then given in its stead.
  void chain(ValueId id, std::string& problem, Bindings& inputs);
  // The sum so far, which is the caller's to add: of ops whose residual has no factor.
  std::optional<Gradient> take(ValueId id);
  // A node with `suffix` behind the name of the one that it belongs to.
  std::vector<ValueId> add(const Node& node, std::string_view suffix, std::string_view op, const std::string& problem,
                           DType dtype, const Bindings& inputs, const Bindings& outputs = {});
  // Binds the output that is the gradient of the node's `tensor`, where that is a parameter, to the place for it.
  void write(const Node& node, std::string_view tensor, const std::string& output, Bindings& outputs);

  [[noreturn]] static void refuse(const Node& node, std::string_view why);

 private:
  Graph* graph_;
  const std::map<ValueId, ValueId>* gradients_;
  std::vector<bool> wanted_;  // by whole value
  std::map<ValueId, Gradient> known_;
  std::set<ValueId> written_;
};

}  // namespace noisefloor::networks
