// The rule of each op, alone: what a sum over its output gains as its weights, and those of products before it, move.
#include "networks/backward.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "kernels/core/fields.h"
#include "tests/support/interpreter.h"
#include "tests/support/refusal.h"

namespace noisefloor::networks {
namespace {

struct Case {
  const char *op, *problem;
  std::set<std::string> parameters = {};  // tensors that are one
  std::set<std::string> data = {};        // that do not depend on any
  std::set<std::string> same = {};        // that are one value
  double h = 0x1p-5, tolerance = 1e-4;    // the step; of the gradient's norm
};

// The node, behind a product for each other tensor.
class Alone {
 public:
  explicit Alone(const Case& one) : one_(one) {
    const Op& op = *find_op(one.op);
    const AnyProblem problem = op.parse(one.problem);
    Bindings inputs;
    std::optional<ValueId> same;
    for (const TensorSpec& spec : op.tensors(problem, DType::fp32)) {
      if (spec.role == Role::out) continue;
      const bool shared = one.same.contains(spec.name);
      if (shared && same) {
        inputs[spec.name] = *same;
        continue;
      }
      inputs[spec.name] = one.parameters.contains(spec.name) ? parameter(spec.name, spec.shape)
                          : one.data.contains(spec.name)     ? graph_.input(spec.name, spec.shape, spec.dtype)
                                                             : product(spec);
      if (shared) same = inputs[spec.name];
    }
    Graph apart;
    Bindings outside;
    for (const auto& [name, id] : inputs) outside[name] = apart.input(name, graph_[id].shape, graph_[id].dtype);
    apart.add("node", one.op, one.problem, DType::fp32, outside);
    const AdjointRule* rule = find_adjoint(one.op);
    const auto outputs = rule->forward != nullptr ? rule->forward(apart.nodes().front(), inputs, graph_)
                                                  : graph_.add("node", one.op, one.problem, DType::fp32, inputs);
    y_ = outputs.at(0);
    dy_ = graph_.input("dy", graph_[y_].shape, DType::fp32);
    forward_ = graph_.nodes().size();
    Backward(graph_, gradients_).run(y_, dy_);
  }

  void check() {
    Interpreter run(graph_);
    std::mt19937 random(7);
    std::normal_distribution<double> normal;
    const auto draw = [&](ValueId id) {
      std::vector<double> numbers(static_cast<std::size_t>(graph_[id].elements()));
      for (double& number : numbers) number = normal(random);
      return numbers;
    };
    for (ValueId id = 0; id < graph_.values().size(); ++id) {
      const Value::Kind kind = graph_[id].kind;
      if (kind == Value::Kind::input || kind == Value::Kind::weight) run.set(id, draw(id));
      if (graph_[id].name == "sigma")  // above 0
        for (std::int64_t i = 0; i < graph_[id].elements(); ++i) run.set(id, i, std::exp(run.get(id, i)));
    }
    run.run(0, graph_.nodes().size());
    for (const auto& [parameter, place] : gradients_) {
      const std::vector<double> gradient = run.all(place);
      double squares = 0;
      for (const double number : gradient) squares += number * number;
      EXPECT_GT(squares, 0) << graph_[parameter].name;
      for (int direction = 0; direction < 2; ++direction) {
        const Gain gain = gain_along(run, parameter, gradient, draw(parameter), one_.h, [&] {
          run.run(0, forward_);
          double sum = 0;
          for (std::int64_t i = 0; i < graph_[y_].elements(); ++i) sum += run.get(y_, i) * run.get(dy_, i);
          return sum;
        });
        EXPECT_LE(std::abs(gain.measured - gain.expected), one_.tolerance * 6 * one_.h * std::sqrt(squares))
            << one_.op << " " << one_.problem << ", " << graph_[parameter].name << ": gains " << gain.measured
            << " where " << gain.expected << " is expected";
      }
    }
  }

 private:
  ValueId parameter(const std::string& name, const std::vector<std::int64_t>& shape) {
    const ValueId id = graph_.weight({name, shape}, shape, DType::fp32);
    gradients_[id] = graph_.state(name + ".gradient", shape, DType::fp32);
    return id;
  }

  ValueId product(const TensorSpec& spec) {
    constexpr std::int64_t kInner = 3;
    const std::string name = spec.name;
    const std::int64_t columns = spec.shape.back(), rows = spec.elements() / columns;
    const ValueId in = graph_.input("in front of " + name, {rows, kInner}, DType::fp32);
    return graph_
        .add("product of " + name, "gemm",
             "m=" + std::to_string(rows) + ",n=" + std::to_string(columns) + ",k=3,bias=0", DType::fp32,
             {{"a", in}, {"b", parameter("weight of " + name, {columns, kInner})}})
        .at(0);
  }

  const Case& one_;
  Graph graph_;
  std::map<ValueId, ValueId> gradients_;
  ValueId y_ = 0, dy_ = 0;
  std::size_t forward_ = 0;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases{
      {"gemm", "m=6,n=5,k=4", {"b", "bias"}},
      {"gemm", "m=6,n=5,k=4,scale=0.5,residual=1", {"b", "bias"}},
      {"gemm", "m=6,n=4,k=4,residual=1", {"b", "bias"}, {}, {"a", "residual"}},
      {"gemm", "m=6,n=5,k=4,act=silu", {"b", "bias"}},
      {"conv2d", "n=2,h=4,w=6,cin=3,cout=5", {"w", "bias"}},
      {"conv2d", "n=2,h=4,w=6,cin=3,cout=5,stride=2,bias=0", {"w"}},
      {"conv2d", "n=2,h=3,w=2,cin=3,cout=5,upsample=1,image_shift=1", {"w", "bias"}},
      {"conv2d", "n=2,h=4,w=3,cin=3,cout=5,image_shift=1,act=relu", {"w", "bias"}, {}, {}, 0x1p-10, 1e-3},
      {"conv2d", "n=2,h=4,w=6,cin=3,cout=5,kernel=2,stride=2,pad=0", {"w", "bias"}},
      {"conv_transpose2d", "n=2,h=2,w=3,cin=3,cout=5,kernel=2", {"w", "bias"}},
      {"conv_transpose2d", "n=2,h=2,w=3,cin=3,cout=5,kernel=4,bias=0", {"w"}},
      {"conv_transpose2d", "n=2,h=3,w=2,cin=5,cout=3,kernel=4,act=relu", {"w", "bias"}, {}, {}, 0x1p-10, 1e-3},
      {"conv2d", "n=2,h=4,w=3,cin=3,cout=3,residual=1,gain=0.7,image_shift=1", {"w", "bias"}, {}, {"x", "residual"}},
      {"conv3d_temporal", "batch=2,frames=4,hw=3,cin=3,cout=5,image_shift=1", {"w", "bias"}},
      {"conv3d_temporal", "batch=2,frames=1,hw=3,cin=3,cout=3,bias=0,residual=1", {"w"}, {}, {"x", "residual"}},
      {"groupnorm", "n=2,hw=6,channels=8,groups=2", {"gamma", "beta"}},
      {"groupnorm", "n=2,hw=6,channels=8,groups=2,fusion=silu", {"gamma", "beta"}},
      {"groupnorm", "n=2,hw=6,channels=8,groups=2,fusion=silu+ss,packed=1", {"gamma", "beta"}},
      {"groupnorm", "n=2,hw=6,channels=8,groups=2,fusion=silu+ss", {"gamma", "beta"}},
      {"attention", "batch=2,heads=2,seq_q=5,seq_kv=5,dim=4,layout=packed_3hd"},
      {"attention", "batch=2,heads=2,seq_q=5,seq_kv=3,dim=4"},
      {"temporal_attention", "batch=2,frames=4,hw=3,heads=1,dim=4,layout=packed_3hd"},
      {"temporal_attention", "batch=2,frames=4,hw=3,heads=2,dim=4,layout=packed_3hd"},
      {"temporal_attention", "batch=2,frames=4,hw=3,heads=2,dim=4,layout=packed_h3d,scale=0.3"},
      {"temporal_attention", "batch=2,frames=4,hw=3,heads=2,dim=4"},
      {"elementwise", "op=add,n=2,hw=3,channels=4,scale=0.5"},
      {"elementwise", "op=add,n=2,hw=3,channels=4", {}, {}, {"a", "b"}},
      {"elementwise", "op=silu,n=2,hw=3,channels=4"},
      {"elementwise", "op=relu,n=1,hw=3,channels=4", {}, {}, {}, 0x1p-10, 1e-3},
      {"elementwise", "op=geglu,n=2,hw=3,channels=4"},
      {"elementwise", "op=nhwc_to_nchw,n=2,hw=3,channels=4"},
      {"elementwise", "op=nchw_to_nhwc,n=2,hw=3,channels=4"},
      {"elementwise", "op=cast,n=2,hw=3,channels=4,to=fp32"},
      {"resample", "op=nearest_up2,n=2,h=2,w=3,channels=4"},
      {"resample", "op=average_down2,n=2,h=2,w=4,channels=4"},
      {"resample", "op=concat,n=2,h=2,w=3,channels=4,skip_channels=3"},
      {"resample", "op=split,n=2,h=2,w=3,channels=4,skip_channels=3"},
      {"edm_precondition", "side=output,batch=3,elements=8", {}, {"x", "sigma"}},
  };
  return kCases;
}

TEST(Backward, RulesGiveGradients) {
  for (const Case& one : cases()) Alone(one).check();
}

// x reaches the sum by four ways, two of them with factors of their own.
TEST(Backward, SumsWhatAllReadersGive) {
  Graph graph;
  const std::vector<std::int64_t> shape{3, 4};
  const ValueId in = graph.input("in", shape, DType::fp32), w = graph.weight({"w", {4, 4}}, {4, 4}, DType::fp32),
                gradient = graph.state("gradient", {4, 4}, DType::fp32);
  const auto add = [&](ValueId a, ValueId b, const char* scale) {
    return graph
        .add("sum", "elementwise", std::string("op=add,n=1,hw=3,channels=4,scale=") + scale, DType::fp32,
             {{"a", a}, {"b", b}})
        .at(0);
  };
  const ValueId x = graph.add("x", "gemm", "m=3,n=4,k=4,bias=0", DType::fp32, {{"a", in}, {"b", w}}).at(0);
  const ValueId y = add(add(add(x, in, "0.5"), x, "3"), x, "1");
  const ValueId z = add(y, x, "2"), dz = graph.input("dz", shape, DType::fp32);
  Backward(graph, {{w, gradient}}).run(z, dz);
  Interpreter run(graph);
  for (std::int64_t i = 0; i < 12; ++i) run.set(in, i, i % 5 - 2.0), run.set(dz, i, i % 7 - 3.0);
  run.run(0, graph.nodes().size());
  for (std::int64_t row = 0; row < 4; ++row)
    for (std::int64_t column = 0; column < 4; ++column) {
      double sum = 0;
      for (std::int64_t k = 0; k < 3; ++k) sum += run.get(dz, 4 * k + row) * run.get(in, 4 * k + column);
      EXPECT_NEAR(run.get(gradient, 4 * row + column), 2 * (1 + 3 + 1.5 + 1) * sum, 1e-4);
    }
}

TEST(Backward, RefusesNamingNodeAndOp) {
  Graph graph;
  const ValueId x = graph.input("x", {2, 3, 4}, DType::fp32), w = graph.weight({"w", {12, 4}}, {12, 4}, DType::fp32),
                gradient = graph.state("gradient", {12, 4}, DType::fp32);
  const ValueId qkv = graph.add("qkv", "gemm", "m=6,n=12,k=4,bias=0", DType::fp32, {{"a", x}, {"b", w}}).at(0);
  const ValueId y = graph
                        .add("along frames", "temporal_attention",
                             "batch=1,frames=2,hw=3,heads=1,dim=4,layout=packed_3hd", DType::fp32, {{"qkv", qkv}})
                        .at(0);
  const ValueId dy = graph.input("dy", {2, 3, 4}, DType::fp32);
  expect_parts(refusal_of<InvalidInput>([&] {
                 Backward(graph, {{w, gradient}}).run(y, dy);
               }),
               {"node along frames", "temporal_attention"});
}

TEST(Backward, RefusesAParameterThatTwoRead) {
  Graph graph;
  const ValueId x = graph.input("x", {2, 4}, DType::fp32), w = graph.weight({"w", {4, 4}}, {4, 4}, DType::fp32),
                gradient = graph.state("gradient", {4, 4}, DType::fp32);
  ValueId y = x;
  for (const char* name : {"first", "second"})
    y = graph.add(name, "gemm", "m=2,n=4,k=4,bias=0", DType::fp32, {{"a", y}, {"b", w}}).at(0);
  const ValueId dy = graph.input("dy", {2, 4}, DType::fp32);
  expect_parts(refusal_of<InvalidInput>([&] { Backward(graph, {{w, gradient}}).run(y, dy); }), {"node first", "b"});
}

}  // namespace
}  // namespace noisefloor::networks
