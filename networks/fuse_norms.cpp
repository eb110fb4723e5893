#include "networks/fuse_norms.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "kernels/conv2d/conv2d.h"
#include "kernels/groupnorm/groupnorm.h"
#include "networks/graph_copy.h"

namespace noisefloor::networks {
namespace {

bool runs_from_a_halo(const conv2d::Problem& problem, DType dtype) {
  return static_cast<bool>(convolution::can_run_ptx_sm90a_halo(conv2d::describe(problem, conv2d::Form::phased), dtype));
}

// The convolution with the norm in front of it; none where no halo can.
std::optional<conv2d::Problem> normed(const Node& node, const groupnorm::Problem& norm,
                                      std::int64_t most_outputs = std::numeric_limits<std::int64_t>::max()) {
  if (node.op != find_op("conv2d")) return std::nullopt;
  auto problem = node.problem.as<conv2d::Problem>();
  problem.norm = norm.fusion == groupnorm::Fusion::none ? conv2d::Norm::affine : conv2d::Norm::affine_silu;
  return problem.cout <= most_outputs && runs_from_a_halo(problem, node.dtype) ? std::optional(problem) : std::nullopt;
}

// The convolution with statistics of its output. A 1x1 is faster as a product, which leaves none.
std::optional<conv2d::Problem> with_statistics(const Node& node) {
  if (node.op != find_op("conv2d")) return std::nullopt;
  auto problem = node.problem.as<conv2d::Problem>();
  const auto whole = [](std::int64_t extent) { return extent % convolution::kPatch == 0; };
  if (problem.kernel == 1 || problem.upsample || !whole(problem.out_h()) || !whole(problem.out_w()))
    return std::nullopt;
  problem.stats = problem.patches = true;
  return runs_from_a_halo(problem, node.dtype) ? std::optional(problem) : std::nullopt;
}

class Fuse {
 public:
  Fuse(const Network& network, const FusedNorms& which) : graph_(network.graph), writer_(from().values().size()) {
    const auto outputs = network.output_values();
    std::set<ValueId> kept(outputs.begin(), outputs.end());  // norms' outputs that something else reads
    for (const Node& node : from().nodes()) {
      const auto specs = node.op->tensors(node.problem, node.dtype);
      for (std::size_t i = 0; i < specs.size(); ++i) {
        const ValueId value = node.values[i];
        if (specs[i].role == Role::out)
          writer_[value] = &node;
        else if (const Node* norm = norm_behind(value);
                 norm && (i != 0 || !normed(node, norm->problem.as<groupnorm::Problem>(), which.most_outputs)))
          kept.insert(value);
      }
    }
    for (const Node& node : from().nodes()) {
      if (node.op != find_op("groupnorm")) continue;
      // What two tensors are the input of stays written: a convolution reads one. So does what is halved behind the
      // norm.
      const auto& norm = node.problem.as<groupnorm::Problem>();
      if (norm.stats || norm.skip_channels > 0 || norm.down()) continue;
      const ValueId y = node.values.back();
      if (kept.contains(y) || static_cast<std::int64_t>(from()[y].bytes()) < which.least_bytes) continue;
      fused_.insert(&node);
      const Node* before = writer_[node.values.front()];
      if (before && with_statistics(*before)) leaves_statistics_.insert(before);
    }
  }

  void run(Network& network) {
    for (const Node& node : from().nodes()) {
      if (fused_.contains(&node))
        make_coefficients(node);
      else
        convolve_or_copy(node);
    }
    graph_.finish(network);
  }

 private:
  const Graph& from() const { return graph_.from(); }
  const Node* norm_behind(ValueId value) const {
    const Node* node = writer_[value];
    return node && node->op == find_op("groupnorm") ? node : nullptr;
  }

  void make_coefficients(const Node& node) {
    auto problem = node.problem.as<groupnorm::Problem>();
    auto inputs = graph_.inputs_of(node);
    problem.coefficients = true;
    const Node* before = writer_[node.values.front()];
    if (leaves_statistics_.contains(before)) {
      problem.slab_stats = groupnorm::SlabStats::given;
      inputs.erase("x");
      inputs["slab_mean"] = statistics_[before].at("mean");
      inputs["slab_m2"] = statistics_[before].at("m2");
    }
    coefficients_[node.values.back()] = graph_.add(node, AnyProblem(problem), inputs).at("coefficients");
  }

  void convolve_or_copy(const Node& node) {
    const Node* norm = norm_behind(node.values.front());
    const bool fused = fused_.contains(norm), leaves = leaves_statistics_.contains(&node);
    if (!fused && !leaves) return graph_.copy(node);
    auto problem = node.problem.as<conv2d::Problem>();
    std::map<std::string, ValueId> inputs;
    if (fused) {
      problem.norm = normed(node, norm->problem.as<groupnorm::Problem>())->norm;
      inputs = graph_.inputs_of(node, {{"x", norm->values.front()}});
      inputs["norm_coefficients"] = coefficients_.at(node.values.front());
    } else {
      inputs = graph_.inputs_of(node);
    }
    problem.stats = problem.patches = leaves;
    const auto outputs = graph_.add(node, AnyProblem(problem), inputs);
    if (leaves) statistics_[&node] = outputs;
  }

  GraphCopy graph_;
  std::vector<const Node*> writer_;  // by value
  std::set<const Node*> fused_;      // norms
  std::set<const Node*> leaves_statistics_;
  std::map<const Node*, std::map<std::string, ValueId>> statistics_;
  std::map<ValueId, ValueId> coefficients_;  // by what the norm wrote before
};

}  // namespace

void fuse_norms(Network& network, const FusedNorms& which) {
  Fuse(network, which).run(network);
}

}  // namespace noisefloor::networks
