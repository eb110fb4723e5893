#include <map>
#include <utility>

#include "kernels/attention/attention.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/conv3d_temporal/conv3d_temporal.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/gemm/gemm.h"
#include "kernels/groupnorm/groupnorm.h"
#include "kernels/resample/resample.h"
#include "kernels/temporal_attention/temporal_attention.h"
#include "networks/graph.h"

namespace noisefloor::networks {
namespace {

using elementwise::Operation;

class Counter {
 public:
  explicit Counter(const Graph& graph) : graph_(graph) {}

  void take_apart(const Node& node) {
    dtype_ = node.dtype;
    const std::string& op = node.op->name;
    if (op == "gemm") {
      product(node, node.problem.as<gemm::Problem>());
    } else if (op == "conv2d") {
      if (graph_[node.values.front()].kind != Value::Kind::constant)  // Layers::shifted: a sum of images and rows
        convolution(node, node.problem.as<conv2d::Problem>());
    } else if (op == "conv3d_temporal") {
      auto p = node.problem.as<conv3d_temporal::Problem>();
      const bool residual = std::exchange(p.residual, false);
      p.image_shift = false;
      count(op, p);
      sums(node, residual, p.pixels(), p.cout);
    } else if (op == "groupnorm") {
      norm(node.problem.as<groupnorm::Problem>());
    } else if (op == "attention") {
      auto p = node.problem.as<attention::Problem>();
      p.layout = attention::Layout::separate;
      count(op, p);
    } else if (op == "temporal_attention") {
      const auto& p = node.problem.as<temporal_attention::Problem>();
      count("attention", attention::Problem{{.batch = p.batch * p.hw,
                                             .heads = p.heads,
                                             .seq_q = p.frames,
                                             .seq_kv = p.frames,
                                             .dim = p.dim,
                                             .scale = p.scale}});
    } else if (op == "elementwise") {
      const auto& p = node.problem.as<elementwise::Problem>();
      if (p.op == Operation::silu)
        pointwise(p.op, p.n * p.hw, p.channels);
      else if (p.op != Operation::nchw_to_nhwc)  // the way back of a copy
        count(op, p);
    } else if (!repeats(node)) {
      add_to(counted_, {node.op, node.text, dtype_, 1});
    }
  }

  std::vector<CountedProblem> counted() && { return std::move(counted_); }

 private:
  // Rows that stand there once more, which a PyTorch program copies and capture has no op for.
  bool repeats(const Node& node) {
    if (node.op->name != "resample" || node.problem.as<resample::Problem>().op != resample::Operation::concat)
      return false;
    const auto once = [&](ValueId rows) { return repeated_.contains(rows) ? repeated_.at(rows) : rows; };
    const ValueId x = once(node.values.at(0));
    if (once(node.values.at(1)) != x) return false;
    repeated_[node.values.back()] = x;
    return true;
  }

  // A blend is a sum more behind a layer, since no op multiplies by a learnt number alone: gemm's, or one whose share
  // is in the weights.
  void sums(const Node& node, bool residual, std::int64_t rows, std::int64_t channels, bool blend = false) {
    const auto& weight = graph_[node.values.at(1)].source;
    if (residual) pointwise(Operation::add, rows, channels);
    if (blend || (weight && weight->share)) pointwise(Operation::add, rows, channels);
  }

  template <class Problem>
  void count(const std::string& op_name, const Problem& problem) {
    const Op* op = find_op(op_name);
    add_to(counted_, {op, op->print(op->parse(op->print(AnyProblem(problem)))), dtype_, 1});
  }

  void pointwise(Operation operation, std::int64_t rows, std::int64_t channels, double scale = 1) {
    count("elementwise", elementwise::Problem{.op = operation, .hw = rows, .channels = channels, .scale = scale});
  }

  void product(const Node& node, const gemm::Problem& p) {
    const auto& source = graph_[node.values.at(1)].source;
    const auto plain = [&](std::int64_t columns) {
      count("gemm", gemm::Problem{.m = p.m, .n = columns, .k = p.k, .scale = p.scale, .bias = p.bias});
    };
    if (source && !source->below.empty())
      for (const WeightSource::Below& tensor : source->tensors()) plain(tensor.rows);
    else
      plain(p.b_rows());
    if (p.act == gemm::Activation::silu) pointwise(Operation::silu, p.m, p.n);
    if (p.gated()) pointwise(Operation::geglu, p.m, p.n);
    sums(node, p.residual, p.m, p.n, p.blend);
  }

  void convolution(const Node& node, conv2d::Problem p) {
    if (p.upsample) {
      count("resample", resample::Problem{.n = p.n, .h = p.h, .w = p.w, .channels = p.cin});
      p.h *= 2, p.w *= 2, p.upsample = false;
    }
    const auto act = std::exchange(p.act, convolution::Activation::none);
    const double gain = std::exchange(p.gain, 1);
    const bool residual = std::exchange(p.residual, false);
    const std::int64_t rows = p.n * p.out_h() * p.out_w();
    p.image_shift = p.stats = false;
    if (p.kernel == 1 && p.stride == 1 && p.pad == 0)
      count("gemm", gemm::Problem{.m = rows, .n = p.cout, .k = p.cin, .bias = p.bias});
    else
      count(node.op->name, p);
    if (act != convolution::Activation::none)
      pointwise(act == convolution::Activation::silu ? Operation::silu : Operation::relu, rows, p.cout);
    if (residual) pointwise(Operation::add, rows, p.cout, gain);
  }

  void norm(const groupnorm::Problem& p) {
    auto plain = p;
    plain.fusion = groupnorm::Fusion::none;
    plain.slab_stats = groupnorm::SlabStats::none;
    plain.stats = plain.packed = plain.coefficients = false;
    count("groupnorm", plain);
    if (p.fusion == groupnorm::Fusion::silu) pointwise(Operation::silu, p.n * p.hw, p.channels);
    if (p.scale_shift())
      count("elementwise",
            elementwise::Problem{
                .op = Operation::silu_fma, .n = p.n, .hw = p.hw, .channels = p.channels, .broadcast = true});
  }

  const Graph& graph_;
  DType dtype_ = DType::fp32;
  std::map<ValueId, ValueId> repeated_;  // what stands in it, several times
  std::vector<CountedProblem> counted_;
};

}  // namespace

std::vector<CountedProblem> count_unfused(const Graph& graph) {
  Counter counter(graph);
  for (const Node& node : graph.nodes()) counter.take_apart(node);
  return std::move(counter).counted();
}

}  // namespace noisefloor::networks
