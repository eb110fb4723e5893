#include "baselines/cudnn_convolution_stages.h"

#include <memory>

namespace noisefloor::cudnn {
namespace {

using convolution::Activation;

constexpr double kBuildSeconds = 12;  // engines compile in up to a second each

Layout images(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
  return {{n, c, h, w}, {c * h * w, 1, c * w, c}};
}

// The pointers that an epilogue reads, in the order in which it declares them.
void bind_epilogue(const convolution::Operands& o, std::vector<void*>& pointers) {
  for (const void* pointer : {o.bias, o.scale, o.shift, o.residual})
    if (pointer != nullptr) pointers.push_back(const_cast<void*>(pointer));
  pointers.push_back(o.y);
}

// The epilogue of convolution.h behind `node`; `has` says which operands there are by their pointers.
void add_epilogue(Graph& graph, int node, const Shape& s, DType dtype, const convolution::Operands& has) {
  const Layout per_channel = images(1, s.cout, 1, 1);
  Layout output = images(s.n, s.cout, s.out_h, s.out_w);
  if (s.four_phases) output.strides = phase_of_output(s.h, s.w, s.cout, 0).strides;
  const auto apply = [&](Pointwise operation, const void* there, const Layout& layout) {
    if (there != nullptr) node = graph.pointwise(operation, node, graph.input(dtype, layout));
  };
  apply(Pointwise::add, has.bias, per_channel);
  apply(Pointwise::multiply, has.scale, per_channel);
  apply(Pointwise::add, has.shift, per_channel);
  if (s.act == Activation::relu) node = graph.pointwise(Pointwise::relu, node);
  if (s.act == Activation::silu) node = graph.pointwise(Pointwise::swish, node);
  apply(Pointwise::add, has.residual, output);
  if (s.gain != 1) node = graph.pointwise(Pointwise::multiply, node, graph.scalar(static_cast<float>(s.gain)));
  graph.output(node, dtype, output);
}

int add_convolution(Graph& graph, const Shape& s, DType dtype) {
  const int x = graph.input(dtype, images(s.n, s.cin, s.h, s.w));
  if (s.transposed) {
    const int w = graph.input(dtype, images(s.cin, s.cout, s.kernel_h, s.kernel_w));
    return graph.transposed_convolution(x, w, s.place, {s.n, s.cout, s.out_h, s.out_w});
  }
  return graph.convolution(x, graph.input(dtype, images(s.cout, s.cin, s.kernel_h, s.kernel_w)), s.place);
}

// The convolution's sums, then what stands behind them. That is built first: its engines are the more likely to be
// missing, and then the convolution's need not be compiled.
std::vector<Stage> in_sequence(std::unique_ptr<Graph> product, std::unique_ptr<Graph> rest, const Algorithms& earlier,
                               Stage::Bind bind, int launches) {
  TunedGraph behind(std::move(rest), kBuildSeconds, earlier, kWordsOfStage);
  std::vector<Stage> stages;
  stages.push_back(
      {{std::move(product), kBuildSeconds, earlier, 0}, [](const convolution::Operands& o, void* into, int) {
         return std::vector<void*>{const_cast<void*>(o.x), const_cast<void*>(o.w), into};
       }});
  stages.push_back({std::move(behind), std::move(bind), launches});
  return stages;
}

}  // namespace

std::vector<Stage> fused_stage(const Shape& s, DType dtype, const convolution::Operands& has,
                               const Algorithms& earlier) {
  auto graph = std::make_unique<Graph>();
  add_epilogue(*graph, add_convolution(*graph, s, dtype), s, dtype, has);
  std::vector<Stage> stages;
  stages.push_back({{std::move(graph), kBuildSeconds, earlier, 0}, [](const convolution::Operands& o, void*, int) {
                      std::vector<void*> pointers{const_cast<void*>(o.x), const_cast<void*>(o.w)};
                      bind_epilogue(o, pointers);
                      return pointers;
                    }});
  return stages;
}

std::vector<Stage> separate_stages(const Shape& s, DType dtype, const convolution::Operands& has,
                                   const Algorithms& earlier) {
  const Layout output = images(s.n, s.cout, s.out_h, s.out_w);
  auto product = std::make_unique<Graph>();
  product->output(add_convolution(*product, s, dtype), DType::fp32, output);
  auto rest = std::make_unique<Graph>();
  const int sums = rest->input(DType::fp32, output);
  add_epilogue(*rest, rest->pointwise(Pointwise::identity, sums), s, dtype, has);
  return in_sequence(
      std::move(product), std::move(rest), earlier,
      [](const convolution::Operands& o, void* from, int) {
        std::vector<void*> pointers{from};
        bind_epilogue(o, pointers);
        return pointers;
      },
      1);
}

std::vector<Stage> four_phase_stages(const Shape& s, DType dtype, const convolution::Operands& has,
                                     const Algorithms& earlier) {
  auto product = std::make_unique<Graph>();
  Shape wide = s;
  wide.cout = 4 * s.cout;
  product->output(add_convolution(*product, wide, dtype), DType::fp32, images(s.n, wide.cout, s.h + 1, s.w + 1));
  auto rest = std::make_unique<Graph>();
  const Layout view{{s.n, s.cout, s.h, s.w}, phase_of_sums(s.h, s.w, s.cout, 0).strides};
  const int sums = rest->input(DType::fp32, view);
  add_epilogue(*rest, rest->pointwise(Pointwise::identity, sums), s, dtype, has);
  const auto bind = [h = s.h, w = s.w, cout = s.cout, element = size_of(dtype)](const convolution::Operands& o,
                                                                                void* from, int phase) {
    const auto at =
        static_cast<std::ptrdiff_t>(phase_of_output(h, w, cout, phase).offset) * static_cast<std::ptrdiff_t>(element);
    convolution::Operands of_phase = o;
    of_phase.y = static_cast<char*>(o.y) + at;
    if (o.residual != nullptr) of_phase.residual = static_cast<const char*>(o.residual) + at;
    std::vector<void*> pointers{static_cast<float*>(from) + phase_of_sums(h, w, cout, phase).offset};
    bind_epilogue(of_phase, pointers);
    return pointers;
  };
  return in_sequence(std::move(product), std::move(rest), earlier, bind, /*launches=*/4);
}

}  // namespace noisefloor::cudnn
