#include <optional>

#include "kernels/conv2d/conv2d.h"
#include "kernels/gemm/gemm.h"
#include "kernels/groupnorm/groupnorm.h"
#include "kernels/resample/resample.h"
#include "networks/rewrite.h"

namespace noisefloor::networks {
namespace {

// A 1x1 and nothing else, of a convolution or of rows.
struct Product {
  ValueId x, w;
  std::int64_t channels;  // of x
  std::optional<ValueId> bias;
};
std::optional<Product> product_of(const Node* node) {
  const auto if_plain = [&](const auto& plain, const char* x, const char* w, std::int64_t channels) {
    const auto bias = plain.bias ? std::optional(node->value("bias")) : std::nullopt;
    const bool is = node->text == node->op->print(AnyProblem(plain));
    return is ? std::optional(Product{node->value(x), node->value(w), channels, bias}) : std::nullopt;
  };
  if (const auto* p = problem_of<gemm::Problem>(node, "gemm"))
    return if_plain(gemm::Problem{.m = p->m, .n = p->n, .k = p->k, .bias = p->bias}, "a", "b", p->k);
  const auto* p = problem_of<conv2d::Problem>(node, "conv2d");
  if (!p) return std::nullopt;
  conv2d::Problem plain{{.n = p->n, .h = p->h, .w = p->w, .cin = p->cin, .cout = p->cout, .kernel = 1, .pad = 0}};
  plain.bias = p->bias;
  return if_plain(plain, "x", "w", p->cin);
}

// One weight for the sum of two, where both are tensors as they are, or the same rows of such.
std::optional<ValueId> sum_of(Graph& graph, ValueId a, ValueId b) {
  const Value &first = graph[a], &second = graph[b];
  if (!first.source || !second.source) return std::nullopt;
  WeightSource sum{first.source->name, first.source->file};
  sum.rows = first.source->rows;
  WeightSource other = sum;
  other.name = second.source->name;
  if (*first.source != sum || *second.source != other) return std::nullopt;
  sum.plus = other.name;
  return graph.weight(sum, first.shape, first.dtype);
}

// The 1x1 whose output a convolution adds in front of everything but its gain, and nobody else reads.
void fold_product(Rewrite& rewrite, const Node& node) {
  auto p = node.problem.as<conv2d::Problem>();
  if (!p.residual || p.upsample || p.affine || p.act != conv2d::Activation::none || p.side > 0) return;
  const auto product = product_of(rewrite.writer_for_one(node.value("residual")));
  if (!product || !rewrite.graph()[product->w].source) return;
  Bindings inputs{{"side", product->x}, {"w_side", product->w}};
  if (product->bias) {
    const auto bias = p.bias ? sum_of(rewrite.graph(), node.value("bias"), *product->bias) : product->bias;
    if (!bias) return;
    inputs["bias"] = *bias;
    p.bias = true;
  }
  p.side = product->channels;
  p.residual = false;
  rewrite.replace_if_they_run({{&node, AnyProblem(p), inputs}});
}

// What reads a concatenation, reading its two parts; none where it cannot.
std::optional<Change> of_two(const Rewrite::Use& use, const Node& node) {
  const auto& concat = node.problem.as<resample::Problem>();
  const std::int64_t channels = concat.out_channels();
  const auto reading = [&](const auto& problem, const char* second) {
    return Change{use.node, AnyProblem(problem), {{use.tensor, node.value("x")}, {second, node.value("skip")}}};
  };
  if (use.value != node.value("y")) return std::nullopt;
  if (const auto* norm = problem_of<groupnorm::Problem>(use.node, "groupnorm"); norm && use.tensor == "x") {
    auto p = *norm;
    p.skip_channels = concat.skip_channels;
    const bool whole = p.channels == channels && norm->skip_channels == 0 && !p.given() && !p.coefficients;
    return whole ? std::optional(reading(p, "skip")) : std::nullopt;
  }
  const auto* conv = problem_of<conv2d::Problem>(use.node, "conv2d");
  if (!conv || use.tensor != "side" || conv->side != channels || conv->side_skip > 0) return std::nullopt;
  auto p = *conv;
  p.side -= p.side_skip = concat.skip_channels;
  return reading(p, "side_skip");
}

void split_concatenation(Rewrite& rewrite, const Node& node) {
  if (node.problem.as<resample::Problem>().op != resample::Operation::concat) return;
  std::vector<Change> changes;
  for (const Rewrite::Use& use : rewrite.uses(node.value("y"))) {
    const auto change = of_two(use, node);
    if (!change) return;
    changes.push_back(*change);
  }
  rewrite.replace_if_they_run(changes);
}

// The upsample whose output a convolution adds, and nobody else reads.
void repeat_upsample(Rewrite& rewrite, const Node& node) {
  auto p = node.problem.as<conv2d::Problem>();
  const Node* upsample = p.residual ? rewrite.writer_for_one(node.value("residual")) : nullptr;
  const auto* up = problem_of<resample::Problem>(upsample, "resample");
  if (!up || up->op != resample::Operation::nearest_up2 || up->scale != 1 || p.upsample || up->n != p.n ||
      2 * up->h != p.out_h() || 2 * up->w != p.out_w() || up->channels != p.cout)
    return;
  p.residual_upsample = true;
  rewrite.replace_if_they_run({{&node, AnyProblem(p), {{"residual", upsample->value("x")}}}});
}

}  // namespace

void fold_skips(Rewrite& rewrite) {
  rewrite.each("conv2d", [&](const Node& node) { fold_product(rewrite, node); });
  rewrite.each("resample", [&](const Node& node) { split_concatenation(rewrite, node); });
  rewrite.each("conv2d", [&](const Node& node) { repeat_upsample(rewrite, node); });
}

}  // namespace noisefloor::networks
