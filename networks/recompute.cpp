// Activations that a backward pass reads are made again next to where it does, from what lives there anyway, where that
// is cheap: norms, pointwise operations, casts, changes of resolution and concatenations. The same numbers.
#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "networks/rewrite.h"

namespace noisefloor::networks {
namespace {

class Recompute {
 public:
  Recompute(Rewrite& rewrite, std::size_t backward, std::size_t least_bytes)
      : rewrite_(rewrite), graph_(rewrite.graph()), backward_(backward), least_bytes_(least_bytes) {
    for (const Node& node : graph_.nodes()) nodes_.push_back(&node);
    last_read_.resize(graph_.values().size());
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      for (const ValueId id : nodes_[i]->values) last_read_[graph_.whole(id)] = i;
  }

  void run() {
    for (std::size_t i = 0; i < backward_; ++i) {
      const auto y = output_of(*nodes_[i]);
      if (!y || graph_[y->value].bytes() < least_bytes_) continue;
      std::vector<Rewrite::Use> later;
      std::size_t first = nodes_.size();
      for (const Rewrite::Use& use : rewrite_.uses(y->value)) {
        const bool whole = use.node != nullptr && use.value == y->value;  // not the caller's, nor a part
        const std::size_t at = whole ? place_of(*use.node) : 0;
        if (whole && at < backward_) continue;
        later.push_back(use);
        first = std::min(first, at);
      }
      if (later.empty() || first < backward_) continue;
      const auto made = again(*nodes_[i], first, graph_[y->value].bytes() / 2);
      if (!made) continue;
      for (const Rewrite::Use& use : later) rewrite_.reread(*use.node, y->value, *made);
      last_read_[y->value] = 0;  // in the backward pass
    }
  }

 private:
  std::size_t place_of(const Node& node) const {
    return static_cast<std::size_t>(std::ranges::find(nodes_, &node) - nodes_.begin());
  }

  // Of a node that can be run again: its one output, statistics of norms aside, which stay.
  std::optional<Node::Tensor> output_of(const Node& node) const {
    constexpr std::string_view kCheap[] = {"groupnorm", "layernorm", "elementwise", "resample"};
    if (std::ranges::find(kCheap, node.op->name) == std::end(kCheap)) return std::nullopt;
    std::optional<Node::Tensor> output;
    for (const Node::Tensor& tensor : node.tensors()) {
      if (tensor.role == Role::in || tensor.name == "mean" || tensor.name == "rstd") continue;
      const Value& value = graph_[tensor.value];
      if (output || value.kind != Value::Kind::activation || value.part) return std::nullopt;
      output = tensor;
    }
    return output;
  }

  // The node's output once more, at `place`, where what has to live longer for it is at most so many bytes.
  std::optional<ValueId> again(const Node& node, std::size_t place, std::size_t most_bytes) {
    const auto y = output_of(node);
    if (!y) return std::nullopt;
    if (const auto made = made_.find(y->value); made != made_.end() && made->second.place <= place)
      return made->second.value;
    Bindings inputs;
    std::vector<ValueId> longer;
    for (const Node::Tensor& tensor : node.tensors()) {
      if (tensor.role == Role::out) continue;
      const ValueId whole = graph_.whole(tensor.value);
      inputs[tensor.name] = tensor.value;
      if (graph_[whole].kind != Value::Kind::activation || last_read_[whole] >= place) continue;
      const Node* const writer = tensor.value == whole ? rewrite_.writer(whole) : nullptr;
      if (const auto made = writer == nullptr ? std::nullopt : again(*writer, place, 0)) {
        inputs[tensor.name] = *made;
      } else {
        if (graph_[whole].bytes() > most_bytes) return std::nullopt;
        most_bytes -= graph_[whole].bytes();
        longer.push_back(whole);
      }
    }
    for (const ValueId value : longer) last_read_[value] = std::max(last_read_[value], place);
    const ValueId made = rewrite_.repeat(node, *nodes_[place - 1], inputs).value(y->name);
    made_[y->value] = {made, place};
    return made;
  }

  struct Made {
    ValueId value = 0;
    std::size_t place = 0;
  };
  Rewrite& rewrite_;
  const Graph& graph_;
  std::size_t backward_, least_bytes_;
  std::vector<const Node*> nodes_;
  std::vector<std::size_t> last_read_;  // of values, the place of the last node that reads or writes them
  std::map<ValueId, Made> made_;
};

}  // namespace

void recompute(Network& network, std::size_t backward, std::size_t least_bytes) {
  Rewrite rewrite(network);
  Recompute(rewrite, backward, least_bytes).run();
  rewrite.finish();
}

}  // namespace noisefloor::networks
