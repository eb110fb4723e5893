#include <algorithm>
#include <optional>
#include <vector>

#include "kernels/conv2d/conv2d.h"
#include "kernels/groupnorm/groupnorm.h"
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

  std::vector<CountedProblem> apart, fused;
  const auto becomes = [&](const Node& one, const AnyProblem& problem) {
    apart.push_back({one.op, one.text, one.dtype, 1});
    fused.push_back({one.op, one.op->print(problem), one.dtype, 1});
  };
  const std::vector<Rewrite::Use> readers = rewrite.uses(y);
  if (readers.empty()) return;
  for (const Rewrite::Use& use : readers) {
    const auto problem = normed(use, norm, which.most_outputs);
    if (!problem || use.value != y) return;
    becomes(*use.node, AnyProblem(*problem));
  }
  const Node* before = rewrite.writer(x);
  const auto leaves = with_statistics(before);
  if (leaves) becomes(*before, AnyProblem(*leaves));
  norm.coefficients = true;
  if (leaves) norm.slab_stats = groupnorm::SlabStats::given;
  becomes(node, AnyProblem(norm));
  if (which.pays && !which.pays(apart, fused)) return;

  Bindings statistics;
  if (leaves) {
    before = &rewrite.replace(*before, AnyProblem(*leaves));
    statistics = {{"slab_mean", before->value("mean")}, {"slab_m2", before->value("m2")}};
  }
  const ValueId now = leaves ? before->value("y") : x;
  const ValueId coefficients = rewrite.replace(node, AnyProblem(norm), statistics).value("coefficients");
  for (const Rewrite::Use& use : readers)
    rewrite.replace(*use.node, AnyProblem(*normed(use, norm, which.most_outputs)),
                    {{"x", now}, {"norm_coefficients", coefficients}});
}

}  // namespace

void fuse_norms(Rewrite& rewrite, const NormFusion& which) {
  rewrite.each("groupnorm", [&](const Node& node) { fuse_norm(rewrite, node, which); });
}

}  // namespace noisefloor::networks
