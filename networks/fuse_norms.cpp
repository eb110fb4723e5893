// What a norm does with its neighbours: it halves images, or becomes a part of convolutions.
#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kernels/conv2d/conv2d.h"
#include "kernels/groupnorm/groupnorm.h"
#include "kernels/resample/resample.h"
#include "networks/rewrite.h"

namespace noisefloor::networks {
namespace {

bool runs_from_a_halo(const conv2d::Problem& problem, DType dtype) {
  return static_cast<bool>(convolution::can_run_ptx_sm90a_halo(conv2d::describe(problem, conv2d::Form::phased), dtype));
}

// A convolution with the norm in front of it; none where no halo can, or where a tile would norm too many times.
std::optional<conv2d::Problem> normed(const Rewrite::Use& use, const groupnorm::Problem& norm,
                                      std::int64_t most_outputs) {
  const auto* conv = problem_of<conv2d::Problem>(use.node, "conv2d");
  if (!conv || use.tensor != "x") return std::nullopt;
  auto problem = *conv;
  problem.norm = norm.fusion == groupnorm::Fusion::none ? conv2d::Norm::affine : conv2d::Norm::affine_silu;
  if (problem.cout > most_outputs || !runs_from_a_halo(problem, use.node->dtype)) return std::nullopt;
  return problem;
}

// A convolution with statistics of its output. A 1x1 is faster as a product, which leaves none.
std::optional<conv2d::Problem> with_statistics(const Node* node) {
  const auto* conv = problem_of<conv2d::Problem>(node, "conv2d");
  const auto whole = [](std::int64_t extent) { return extent % convolution::kPatch == 0; };
  if (!conv || conv->kernel == 1 || conv->upsample || !whole(conv->out_h()) || !whole(conv->out_w()))
    return std::nullopt;
  auto problem = *conv;
  problem.stats = problem.patches = true;
  return runs_from_a_halo(problem, node->dtype) ? std::optional(problem) : std::nullopt;
}

void fuse_norm(Rewrite& rewrite, const Node& node, const NormFusion& which) {
  auto norm = node.problem.as<groupnorm::Problem>();
  // What two tensors are the input of stays written: a convolution reads one. So does what is halved behind the norm.
  if (norm.stats || norm.coefficients || norm.skip_channels > 0 || norm.down()) return;
  const ValueId x = node.value("x"), y = node.value("y");
  if (static_cast<std::int64_t>(rewrite.graph()[y].bytes()) < which.least_bytes) return;

  std::vector<Change> changes;
  for (const Rewrite::Use& use : rewrite.uses(y)) {
    const auto problem = normed(use, norm, which.most_outputs);
    if (!problem || use.value != y) return;
    changes.push_back({use.node, AnyProblem(*problem)});
  }
  if (changes.empty()) return;
  const std::vector<Change> readers = changes;
  const Node* before = rewrite.writer(x);
  const auto leaves = with_statistics(before);
  if (leaves) changes.push_back({before, AnyProblem(*leaves)});
  norm.coefficients = true;
  if (leaves) norm.slab_stats = groupnorm::SlabStats::given;
  changes.push_back({&node, AnyProblem(norm)});
  if (which.pays && !which.pays(changes)) return;

  Bindings statistics;
  if (leaves) {
    before = &rewrite.replace({before, AnyProblem(*leaves)});
    statistics = {{"slab_mean", before->value("mean")}, {"slab_m2", before->value("m2")}};
  }
  const ValueId now = leaves ? before->value("y") : x;
  const ValueId coefficients = rewrite.replace({&node, AnyProblem(norm), statistics}).value("coefficients");
  for (const auto& [reader, problem, inputs] : readers)
    rewrite.replace({reader, problem, {{"x", now}, {"norm_coefficients", coefficients}}});
}

// The average of all of an image of [n, hw, channels], where it is read so.
const resample::Problem* average_of(const Rewrite::Use& use, ValueId image, const groupnorm::Problem& norm) {
  const auto* p = problem_of<resample::Problem>(use.node, "resample");
  const bool fits = p && use.value == image && p->op == resample::Operation::average_down2 && p->scale == 1 &&
                    p->n == norm.n && p->h * p->w == norm.hw && p->channels == norm.channels;
  return fits ? p : nullptr;
}

void halve(Rewrite& rewrite, const Node& norm) {
  auto p = norm.problem.as<groupnorm::Problem>();
  if (p.down() || p.stats || p.given() || p.coefficients || p.skip_channels > 0) return;
  const ValueId x = norm.value("x"), y = norm.value("y");
  const auto &of_x = rewrite.uses(x), &of_y = rewrite.uses(y);
  const auto* halved = of_y.size() == 1 ? average_of(of_y[0], y, p) : nullptr;
  if (halved == nullptr) return;
  const auto skip = std::ranges::find_if(of_x, [&](const Rewrite::Use& use) {
    const auto* other = average_of(use, x, p);  // what is read of it must stand behind the norm
    return other != nullptr && other->w == halved->w && rewrite.runs_before(norm, *use.node);
  });
  p.down_w = halved->w;
  if (skip == of_x.end() || !rewrite.runs({&norm, AnyProblem(p)})) return;
  const ValueId smaller_y = of_y[0].node->value("y"), smaller_x = skip->node->value("y");
  const Node& both = rewrite.replace({&norm, AnyProblem(p)});
  rewrite.redirect(smaller_y, both.value("y"));
  rewrite.redirect(smaller_x, both.value("x_down"));
}

}  // namespace

void fuse_norms(Rewrite& rewrite, const NormFusion& which) {
  rewrite.each("groupnorm", [&](const Node& node) { fuse_norm(rewrite, node, which); });
}

std::vector<CountedProblem> count_foldable(const Network& network) {
  std::vector<CountedProblem> all = count_problems(network.graph);
  const auto add = [&](const std::function<bool(const std::string& norm)>& in_convolutions) {
    const auto pays = [&](const std::vector<Change>& changes) { return in_convolutions(changes.back().node->text); };
    Network other = network;
    fuse(other, {.fuse_norms = NormFusion{.pays = pays}});
    for (const CountedProblem& one : count_problems(other.graph)) {
      const auto is_it = [&](const CountedProblem& known) {
        return known.op == one.op && known.text == one.text && known.dtype == one.dtype;
      };
      if (std::ranges::none_of(all, is_it)) all.push_back(one);
    }
  };
  std::set<std::string> norms;
  add([&](const std::string& norm) { return norms.insert(norm), true; });
  for (const std::string& one : norms) {
    add([&](const std::string& norm) { return norm == one; });
    add([&](const std::string& norm) { return norm != one; });
  }
  return all;
}

void halve_in_norms(Rewrite& rewrite) {
  rewrite.each("groupnorm", [&](const Node& norm) { halve(rewrite, norm); });
}

}  // namespace noisefloor::networks
