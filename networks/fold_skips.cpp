#include <optional>
#include <utility>

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
  conv2d::Problem plain{.n = p->n, .h = p->h, .w = p->w, .cin = p->cin, .cout = p->cout, .kernel = 1, .pad = 0};
  plain.bias = p->bias;
  return if_plain(plain, "x", "w", p->cin);
}

// One weight for the sum of two, where both are whole tensors or the same rows of such.
std::optional<WeightSource> sum_of(const Value& a, const Value& b) {
  if (!a.source || !b.source) return std::nullopt;
  WeightSource plain{a.source->name, a.source->file};
  plain.first_row = a.source->first_row, plain.rows = a.source->rows;
  WeightSource sum = plain;
  sum.plus = b.source->name;
  const bool first = *a.source == plain;
  plain.name = b.source->name;
  return first && *b.source == plain ? std::optional(sum) : std::nullopt;
}

// The 1x1 whose output a convolution adds in front of everything but its gain, and nobody else reads.
void fold_product(Rewrite& rewrite, const Node& node, const Runs& runs) {
  auto p = node.problem.as<conv2d::Problem>();
  if (!p.residual || p.upsample || p.affine || p.act != conv2d::Activation::none || p.side > 0) return;
  const auto product = product_of(rewrite.writer_for_one(node.value("residual")));
  Graph& graph = rewrite.graph();
  if (!product || !graph[product->w].source) return;
  Bindings inputs{{"side", product->x}, {"w_side", product->w}};
  const bool two = p.bias && product->bias;
  const auto bias = two ? sum_of(graph[node.value("bias")], graph[*product->bias]) : std::nullopt;
  if (two && !bias) return;
  p.side = product->channels;
  p.residual = false;
  p.bias = p.bias || product->bias;
  if (!runs(*node.op, AnyProblem(p), node.dtype)) return;
  if (product->bias)
    inputs["bias"] = two ? graph.weight(*bias, graph[*product->bias].shape, node.dtype) : *product->bias;
  rewrite.replace(node, AnyProblem(p), inputs);
}

// What reads a concatenation, reading its two parts; none where it cannot.
std::optional<AnyProblem> of_two(const Rewrite::Use& use, const resample::Problem& concat) {
  const std::int64_t channels = concat.out_channels();
  if (const auto* norm = problem_of<groupnorm::Problem>(use.node, "groupnorm"); norm && use.tensor == "x") {
    auto p = *norm;
    p.skip_channels = concat.skip_channels;
    const bool whole = p.channels == channels && norm->skip_channels == 0 && !p.given() && !p.coefficients;
    return whole ? std::optional(AnyProblem(p)) : std::nullopt;
  }
  const auto* conv = problem_of<conv2d::Problem>(use.node, "conv2d");
  if (!conv || use.tensor != "side" || conv->side != channels || conv->side_skip > 0) return std::nullopt;
  auto p = *conv;
  p.side -= p.side_skip = concat.skip_channels;
  return AnyProblem(p);
}

void split_concatenation(Rewrite& rewrite, const Node& node, const Runs& runs) {
  const auto& concat = node.problem.as<resample::Problem>();
  if (concat.op != resample::Operation::concat) return;
  const ValueId y = node.value("y");
  const std::vector<Rewrite::Use> readers = rewrite.uses(y);
  for (const Rewrite::Use& use : readers) {
    const auto problem = of_two(use, concat);
    if (!problem || use.value != y || !runs(*use.node->op, *problem, use.node->dtype)) return;
  }
  for (const Rewrite::Use& use : readers)
    rewrite.replace(*use.node, *of_two(use, concat),
                    {{use.tensor, node.value("x")}, {use.tensor == "x" ? "skip" : "side_skip", node.value("skip")}});
}

// The upsample whose output a convolution adds, and nobody else reads.
void repeat_upsample(Rewrite& rewrite, const Node& node, const Runs& runs) {
  auto p = node.problem.as<conv2d::Problem>();
  const Node* upsample = p.residual ? rewrite.writer_for_one(node.value("residual")) : nullptr;
  const auto* up = problem_of<resample::Problem>(upsample, "resample");
  if (!up || up->op != resample::Operation::nearest_up2 || p.upsample || up->n != p.n || 2 * up->h != p.out_h() ||
      2 * up->w != p.out_w() || up->channels != p.cout)
    return;
  p.residual_upsample = true;
  if (runs(*node.op, AnyProblem(p), node.dtype))
    rewrite.replace(node, AnyProblem(p), {{"residual", upsample->value("x")}});
}

}  // namespace

void fold_skips(Rewrite& rewrite, const Runs& runs) {
  rewrite.each("conv2d", [&](const Node& node) { fold_product(rewrite, node, runs); });
  rewrite.each("resample", [&](const Node& node) { split_concatenation(rewrite, node, runs); });
  rewrite.each("conv2d", [&](const Node& node) { repeat_upsample(rewrite, node, runs); });
}

}  // namespace noisefloor::networks
