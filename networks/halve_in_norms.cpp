#include "networks/halve_in_norms.h"

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "kernels/groupnorm/groupnorm.h"
#include "kernels/resample/resample.h"
#include "networks/graph_copy.h"

namespace noisefloor::networks {
namespace {

// The average of x of [n, hw, channels], if it is one.
const resample::Problem* average_of(const Node& node, const groupnorm::Problem& norm) {
  if (node.op != find_op("resample")) return nullptr;
  const auto& p = node.problem.as<resample::Problem>();
  const bool fits = p.op == resample::Operation::average_down2 && p.n == norm.n && p.h * p.w == norm.hw &&
                    p.channels == norm.channels;
  return fits ? &p : nullptr;
}

class Halving {
 public:
  Halving(const Network& network, const Runs& runs)
      : graph_(network.graph), runs_(runs), readers_(from().values().size()) {
    for (const Node& node : from().nodes()) {
      const auto specs = node.op->tensors(node.problem, node.dtype);
      for (std::size_t i = 0; i < specs.size(); ++i)
        if (specs[i].role != Role::out) readers_[from().whole(node.values[i])].push_back(&node);
    }
    for (const ValueId output : network.output_values()) readers_[from().whole(output)].push_back(nullptr);
    for (const Node& node : from().nodes())
      if (const auto halved = halved_behind(node)) {
        halved_[&node] = *halved;
        averages_.insert({halved->y, halved->x});
      }
  }

  void run(Network& network) {
    for (const Node& node : from().nodes()) {
      if (averages_.contains(&node)) continue;
      const auto halved = halved_.find(&node);
      if (halved == halved_.end()) {
        graph_.copy(node);
        continue;
      }
      const auto outputs = graph_.add(node, AnyProblem(halved->second.problem), graph_.inputs_of(node));
      graph_.move(halved->second.y->values.back(), outputs.at("y"));
      graph_.move(halved->second.x->values.back(), outputs.at("x_down"));
    }
    graph_.finish(network);
  }

 private:
  struct Halved {
    groupnorm::Problem problem;
    const Node *y = nullptr, *x = nullptr;  // the averages that fall away
  };

  const Graph& from() const { return graph_.from(); }

  std::optional<Halved> halved_behind(const Node& node) const {
    if (node.op != find_op("groupnorm")) return std::nullopt;
    Halved halved{node.problem.as<groupnorm::Problem>()};
    auto& p = halved.problem;
    if (p.down() || p.stats || p.given() || p.coefficients || p.skip_channels > 0) return std::nullopt;
    const ValueId x = node.values.front(), y = node.values.back();
    const auto& of_y = readers_[y];
    if (of_y.size() != 1 || of_y[0] == nullptr || of_y[0]->values.front() != y) return std::nullopt;
    halved.y = of_y[0];
    const resample::Problem* average = average_of(*halved.y, p);
    if (average == nullptr) return std::nullopt;
    // Nodes stand in the order in which they run: what is read of x_down must stand behind the norm.
    for (const Node* reader : readers_[from().whole(x)])
      if (reader != nullptr && reader > &node && reader->values.front() == x && reader->text == halved.y->text &&
          reader->op == halved.y->op && !averages_.contains(reader))
        halved.x = reader;
    p.down_w = average->w;
    const bool runs = halved.x != nullptr && runs_(*node.op, AnyProblem(p), node.dtype);
    return runs ? std::optional(halved) : std::nullopt;
  }

  GraphCopy graph_;
  const Runs& runs_;
  std::vector<std::vector<const Node*>> readers_;  // by value, of it or of its parts; null: the network's caller
  std::map<const Node*, Halved> halved_;           // by norm
  std::set<const Node*> averages_;                 // that fall away
};

}  // namespace

void halve_in_norms(Network& network, const Runs& runs) {
  Halving(network, runs).run(network);
}

}  // namespace noisefloor::networks
