// A network's graph changed by patterns: fewer, larger nodes in the place of some. What a pattern asks (who writes a
// value, who reads it) and does (a node in the place of another, another value for all who read one) is here; each
// pattern has a place of its own (fold_skips.cpp, ...), and `fuse` applies them in their one order.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "networks/network.h"

namespace noisefloor::networks {

// Whether a node of this op and problem can be run.
using Runs = std::function<bool(const Op&, const AnyProblem&, DType)>;
// By a variant of ours in PTX for sm_90a: whether this build has it is for others to ask.
bool runs_on_sm90a(const Op& op, const AnyProblem& problem, DType dtype);

// A node, and what it becomes: another problem of its op, and other values for some inputs.
struct Change {
  const Node* node;
  AnyProblem problem;
  Bindings inputs = {};
};

class Rewrite {
 public:
  struct Use {
    const Node* node;    // null: the network's caller
    std::string tensor;  // by which the node knows it
    ValueId value;       // that is read: all of it, or a part
  };

  // Of a graph that nobody else changes until finish().
  explicit Rewrite(Network& network, Runs runs = runs_on_sm90a);

  Graph& graph() { return network_.graph; }  // for weights, constants and parts
  const Graph& graph() const { return network_.graph; }
  // Each node of an op that stands when its turn comes, in the order in which they run.
  void each(std::string_view op, const std::function<void(const Node&)>& visit) const;
  // The node that writes a value, or null: of an input, a weight, and of what is a part of something else.
  const Node* writer(ValueId id) const;
  const std::vector<Use>& uses(ValueId id) const;
  // The writer of a value that is read once, else null.
  const Node* writer_for_one(ValueId id) const { return uses(id).size() == 1 ? writer(id) : nullptr; }
  bool runs_before(const Node& node, const Node& other) const;

  // A node that runs when `place` does. Throws as Graph::add does.
  const Node& add(const Node& place, const std::string& name, const AnyProblem& problem, const Bindings& inputs);
  // The node once more, with other inputs, to run behind `before`.
  const Node& repeat(const Node& node, const Node& before, const Bindings& inputs);
  // Of one reader alone.
  void reread(const Node& reader, ValueId from, ValueId to);
  // The node that stands in the place of another. Inputs that its problem has no tensor for are left out. Who read an
  // output of the one reads that of the same name.
  const Node& replace(Change change);
  // All of them, where each can be run; else none.
  void replace_if_they_run(const std::vector<Change>& changes);
  bool runs(const Change& change) const { return runs_(*change.node->op, change.problem, change.node->dtype); }
  // Who read `from`, or a part of it, reads `to`. Nodes of which nothing is read any more fall away.
  void redirect(ValueId from, ValueId to);

  // Nodes in order; weights and constants that nothing reads any more are unread. Throws std::logic_error naming a node
  // that would read what nothing before it writes: a pattern's mistake.
  void finish();

 private:
  struct Standing {
    Node* node;
    std::size_t place;  // in the order: that of the node in whose place it stands
  };
  std::vector<Node*> in_order() const;
  void enter(Node& node, std::size_t place);
  void drop_if_unread(const Node& node);

  Network& network_;
  Runs runs_;
  std::map<const Node*, Standing> standing_;
  std::map<ValueId, const Node*> writers_;
  std::map<ValueId, std::vector<Use>> uses_;  // of a whole value, those of its parts among them
};

// The problem of a node of that op; null where it is of another, or no node.
template <class Problem>
const Problem* problem_of(const Node* node, std::string_view op) {
  return node != nullptr && node->op->name == op ? &node->problem.as<Problem>() : nullptr;
}

// Short products that share A, as the projections of the embedding in every residual block and the keys and values of
// the text do, become one product, whose parts their readers take where they lie. Of one row they are of any widths; of
// several rows of one width, as gemm's part_columns makes them. Each output element is the same sum. A product stays
// alone that fills a GPU by itself (merging saves launches), whose columns are not a multiple of what parts need, or
// whose weight is blended, cut or packed.
void merge_products(Rewrite& rewrite);

// A block's skip connection without tensors of its own: its 1x1 is summed by the convolution that added it as a
// residual (conv2d's `side`), a concatenation that only such sums and norms read is read in its two parts, never
// written, and an upsampled residual is repeated by the convolution that adds it (`residual_upsample`). The same
// numbers but for roundings that fall away: the 1x1's output, and of its bias, which is added to that of the
// convolution before both are rounded. The 1x1 may be a product of rows. What cannot be run is not folded.
void fold_skips(Rewrite& rewrite);

// An image that is halved behind a norm, in one node, where that can be run: groupnorm's `down_w` writes the average of
// what it norms and that of its input, in the place of a norm and two of resample's averages. The same numbers. Of
// norms whose output an average alone reads, and whose input another one.
void halve_in_norms(Rewrite& rewrite);

// Which norms convolutions do themselves.
struct NormFusion {
  // Not tried, as measured at batch 32 (docs/experiments/convolution, "the norm in front"): of a normed tensor below so
  // many bytes two short launches are no slower; above so many outputs of the convolution each tile norms its halos
  // anew.
  std::int64_t least_bytes = std::int64_t{16} << 20;
  std::int64_t most_outputs = 192;
  // Whether nodes that are changed take less time so. Without it all pay.
  std::function<bool(const std::vector<Change>&)> pays = {};
};

// GroupNorm in front of convolutions, done by these while their input lies in shared memory: the node of the norm then
// makes coefficients per image and channel alone, where it can from statistics that the convolution before it leaves,
// and the normed tensor is never written. Of norms whose output only convolutions read that ptx_sm90a_halo takes: other
// variants would norm an input once a tap, so it is for GPUs that have that one. The same numbers but for one rounding
// less, of nothing else.
void fuse_norms(Rewrite& rewrite, const NormFusion& which);

// Of a training step, whose backward pass begins with that node: activations of at least so many bytes, which it reads,
// are made again next to where it does, where that is cheap and needs hardly anything to live longer for it.
constexpr std::size_t kLeastRecomputed = std::size_t{1} << 20;  // below that a launch saves nothing
void recompute(Network& network, std::size_t backward, std::size_t least_bytes = kLeastRecomputed);

// What plans may launch of a network whose skip connections are folded, whichever norms pay: its problems with no norm
// in a convolution, with all that can be, with those of one problem alone, and with all others. Each has the count of
// the first of these graphs that has it.
std::vector<CountedProblem> count_foldable(const Network& network);

// Which of them a network gets, in this order.
struct Fusions {
  bool merge_products = false;
  bool fold_skips = false;  // and averages into the norms before them
  std::optional<NormFusion> fuse_norms = {};
  Runs runs = runs_on_sm90a;
};
void fuse(Network& network, const Fusions& fusions);

}  // namespace noisefloor::networks
