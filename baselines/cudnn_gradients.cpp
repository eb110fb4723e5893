// conv2d_dgrad and conv2d_wgrad by cuDNN. dgrad is one graph, with its scale and residual behind it. wgrad is a graph
// for dw, in fp32 or in the dtype and cast by a graph of its own, whichever is faster; dbias, a reduction, is another.
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "baselines/baseline.h"
#include "baselines/cudnn_run.h"
#include "baselines/search.h"
#include "kernels/conv2d_dgrad/conv2d_dgrad.h"
#include "kernels/conv2d_wgrad/conv2d_wgrad.h"
#include "kernels/core/device.h"

namespace noisefloor::cudnn {
namespace {

Layout layout_of_x(const convolution::Shape& s) {
  return channels_last(s.n, s.cin, s.h, s.w);
}
Layout layout_of_dy(const convolution::Shape& s) {
  return channels_last(s.n, s.cout, s.out_h(), s.out_w());
}
Layout layout_of_w(const convolution::Shape& s) {
  return channels_last(s.cout, s.cin, s.kernel, s.kernel_w());
}
ConvolutionPlace place_of(const convolution::Shape& s) {
  return {{s.pad, s.pad_w()}, {s.stride, s.stride}};
}

Support can_run_conv2d_dgrad(const AnyProblem& any, DType) {
  if (any.as<conv2d_dgrad::Problem>().upsample)
    return unsupported("cuDNN's gradients know no upsample: they sum no pixels 2x2");
  return supported();
}

std::unique_ptr<BaselineRun> create_conv2d_dgrad(const AnyProblem& any, DType dtype, const DeviceInfo&,
                                                 const Algorithms& earlier) {
  const auto& p = any.as<conv2d_dgrad::Problem>();
  auto graph = std::make_unique<Graph>();
  const Layout layout = layout_of_x(p);
  const int dy = graph->input(dtype, layout_of_dy(p)), w = graph->input(dtype, layout_of_w(p));
  int node = graph->transposed_convolution(dy, w, place_of(p), layout.extents);
  const auto times = [&](int tensor, double factor) {
    return factor == 1 ? tensor
                       : graph->pointwise(Pointwise::multiply, tensor, graph->scalar(static_cast<float>(factor)));
  };
  node = times(node, p.scale);
  if (p.residual) node = graph->pointwise(Pointwise::add, node, times(graph->input(dtype, layout), p.residual_scale));
  graph->output(node, dtype, layout);
  return run_of_graph(
      std::move(graph), kBuildConvolutionSeconds, earlier,
      [](std::span<void* const> pointers, const Scratch&) { return std::vector(pointers.begin(), pointers.end()); });
}

Support can_run_conv2d_wgrad(const AnyProblem& any, DType) {
  const auto& p = any.as<conv2d_wgrad::Problem>();
  if (p.upsample) return unsupported("cuDNN's gradients know no upsample: they read no pixel four times");
  if (p.image_shift) return unsupported("cuDNN's engines reduce to one value per channel, not per image and channel");
  if (p.scale != 1) return unsupported("cuDNN's gradients by weights have no scale; it would be a launch more");
  return supported();
}

// The tensors of conv2d_wgrad in their order: x, dy, dw, dbias.
std::vector<GraphsRun::Stage> wgrad_stages(const conv2d_wgrad::Problem& p, DType dtype, bool wide,
                                           const Algorithms& earlier) {
  using Pointers = std::span<void* const>;
  std::vector<GraphsRun::Stage> stages;
  const auto add = [&](std::unique_ptr<Graph> graph, auto bind) {
    const std::size_t word = 2 * stages.size();
    stages.push_back({{std::move(graph), kBuildConvolutionSeconds, earlier, word}, std::move(bind)});
  };
  auto product = std::make_unique<Graph>();
  const int dy = product->input(dtype, layout_of_dy(p)), x = product->input(dtype, layout_of_x(p));
  const int dw = product->weight_gradient(dy, x, place_of(p), layout_of_w(p).extents);
  product->output(dw, wide ? DType::fp32 : dtype, layout_of_w(p));
  add(std::move(product), [wide](Pointers t, const Scratch& own) {
    return std::vector<void*>{t[1], t[0], wide ? t[2] : own.workspace};
  });
  if (!wide) {
    auto cast = std::make_unique<Graph>();
    cast->output(cast->pointwise(Pointwise::identity, cast->input(dtype, layout_of_w(p))), DType::fp32, layout_of_w(p));
    add(std::move(cast), [](Pointers t, const Scratch& own) { return std::vector<void*>{own.workspace, t[2]}; });
  }
  if (p.bias) {
    auto sums = std::make_unique<Graph>();
    const int bias = sums->channel_sums(sums->input(dtype, layout_of_dy(p)), p.cout);
    sums->output(bias, DType::fp32, channels_last(1, p.cout, 1, 1));
    add(std::move(sums), [](Pointers t, const Scratch&) { return std::vector<void*>{t[1], t[3]}; });
  }
  return stages;
}

std::unique_ptr<BaselineRun> create_conv2d_wgrad(const AnyProblem& any, DType dtype, const DeviceInfo&,
                                                 const Algorithms& earlier) {
  const auto& p = any.as<conv2d_wgrad::Problem>();
  const std::size_t cast_bytes = aligned(static_cast<std::size_t>(p.cout * p.taps() * p.cin) * size_of(dtype));
  const auto of = [&](bool wide) {
    return [&p, dtype, wide, own_bytes = wide ? 0 : cast_bytes](const Algorithms& words) {
      return std::make_unique<GraphsRun>(wgrad_stages(p, dtype, wide, words), own_bytes);
    };
  };
  if (dtype == DType::fp32) return of(true)(earlier);
  return std::make_unique<FormsRun>(std::vector<Form>{{"fp32", of(true)}, {"cast", of(false)}}, earlier);
}

}  // namespace

Baseline conv2d_dgrad_baseline() {
  return {"conv2d_dgrad", "cudnn", can_run_conv2d_dgrad, create_conv2d_dgrad, version};
}
Baseline conv2d_wgrad_baseline() {
  return {"conv2d_wgrad", "cudnn", can_run_conv2d_wgrad, create_conv2d_wgrad, version};
}

}  // namespace noisefloor::cudnn
