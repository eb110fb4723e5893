// Of a product A B^T: two products, of other layouts. That of B gives the bias's, too.
#include "kernels/gemm/gemm.h"

#include <fmt/format.h>

#include "networks/backward.h"

namespace noisefloor::networks {
namespace {

// The product and its activation apart.
std::vector<ValueId> gemm_forward(const Node& node, const Bindings& inputs, Graph& graph) {
  gemm::Problem p = node.problem.as<gemm::Problem>();
  if (p.act == gemm::Activation::none) return graph.add(node.name, "gemm", node.text, node.dtype, inputs);
  if (p.act != gemm::Activation::silu || p.residual) Backward::refuse(node, "there is no gradient of its epilogue yet");
  p.act = gemm::Activation::none;
  const ValueId sums = graph.add(node.name, "gemm", node.op->print(AnyProblem(p)), node.dtype, inputs).at(0);
  return graph.add(node.name + ".act", "elementwise", fmt::format("op=silu,n=1,hw={},channels={}", p.m, p.n),
                   node.dtype, {{"x", sums}});
}

void gemm_backward(const Node& node, Backward& walk) {
  const auto& p = node.problem.as<gemm::Problem>();
  if (p.blend || p.parts() > 1 || (p.image_shift && walk.wanted(node.value("image_shift"))))
    Backward::refuse(node, "there is no gradient of its epilogue yet");
  const Gradient dy = walk.of(node.value("d"));
  if (p.residual) walk.give(node.value("residual"), dy);
  const double scale = dy.scale * p.scale;
  const ValueId a = node.value("a"), b = node.value("b");
  if (walk.wanted(a)) {
    // The residual has no factor: the whole sum has it.
    const std::optional<Gradient> so_far = walk.take(a);
    const double factor = so_far ? so_far->scale : 1;
    Bindings inputs{{"a", dy.value}, {"b", b}};
    if (so_far) inputs["residual"] = so_far->value;
    const auto da = walk.add(node, ".dgrad", "gemm",
                             fmt::format("m={},n={},k={},layout=nn,bias=0,scale={},residual={:d}", p.m, p.k, p.n,
                                         scale / factor, so_far.has_value()),
                             node.dtype, inputs);
    walk.give(a, {da.at(0), factor});
  }
  Bindings of_b, of_bias;
  walk.write(node, "b", "d", of_b);
  if (p.bias) walk.write(node, "bias", "row_sums", of_bias);
  const auto product = [&](const char* suffix, double times, const Bindings& written) {
    walk.add(node, suffix, "gemm",
             fmt::format("m={},n={},k={},layout=tn,to=fp32,bias=0,scale={},row_sums={:d}", p.n, p.k, p.m, times,
                         written.contains("row_sums")),
             node.dtype, {{"a", dy.value}, {"b", a}}, written);
  };
  if (p.scale == 1) of_b.merge(of_bias);  // else of another factor
  if (!of_b.empty()) product(".wgrad", scale, of_b);
  if (!of_bias.empty()) product(".bias", dy.scale, of_bias);
}

}  // namespace

const AdjointRule gemm_adjoint{"gemm", gemm_forward, gemm_backward};

}  // namespace noisefloor::networks
