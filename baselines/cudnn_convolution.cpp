// conv2d, conv3d_temporal and conv_transpose2d by cuDNN: one graph of the convolution and everything behind it,
// autotuned over the engine configurations that cuDNN's heuristics offer.
//
// Where no engine takes the whole graph, a convolution that leaves its sums in fp32 and a graph of pointwise operations
// behind it run as two launches; the row's description says so. In fp32, where fused engines are few, slow, or round to
// TF32, both forms are tuned if anything stands behind the sums, and the faster runs. A nearest-x2
// upsample before the convolution is a launch of this project's `resample`, since no engine of cuDNN reads through one
// (nor takes the outputs as four phases: docs/measuring.md). A transposed convolution is the gradient of one; it wants
// the weights as [cin, kh, kw, cout], and gets a copy, made once, or in training by launches of each step.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "baselines/baseline.h"
#include "baselines/cudnn_run.h"
#include "baselines/search.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/conv3d_temporal/conv3d_temporal.h"
#include "kernels/conv_transpose2d/conv_transpose2d.h"
#include "kernels/core/cuda_status.h"
#include "kernels/core/device.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/resample/resample.h"

namespace noisefloor::cudnn {
namespace {

constexpr std::size_t kWordsOfStage = 2;  // of a choice

// What the three ops have in common. x is what the convolution reads, after any upsampling.
struct Shape {
  std::int64_t n, h, w, cin, out_h, out_w, cout, kernel_h, kernel_w;
  ConvolutionPlace place;
  bool transposed = false;
  bool upsample = false;
  convolution::Activation act = convolution::Activation::none;
  double gain = 1;
};

// The epilogue of convolution.h behind `node`; `has` says which operands there are by their pointers.
void add_epilogue(Graph& graph, int node, const Shape& s, DType dtype, const convolution::Operands& has) {
  const Layout per_channel = channels_last(1, s.cout, 1, 1), output = channels_last(s.n, s.cout, s.out_h, s.out_w);
  const auto apply = [&](Pointwise operation, const void* there, const Layout& layout) {
    if (there != nullptr) node = graph.pointwise(operation, node, graph.input(dtype, layout));
  };
  apply(Pointwise::add, has.bias, per_channel);
  apply(Pointwise::multiply, has.scale, per_channel);
  apply(Pointwise::add, has.shift, per_channel);
  if (s.act == convolution::Activation::relu) node = graph.pointwise(Pointwise::relu, node);
  if (s.act == convolution::Activation::silu) node = graph.pointwise(Pointwise::swish, node);
  apply(Pointwise::add, has.residual, output);
  if (s.gain != 1) node = graph.pointwise(Pointwise::multiply, node, graph.scalar(static_cast<float>(s.gain)));
  graph.output(node, dtype, output);
}

int add_convolution(Graph& graph, const Shape& s, DType dtype) {
  const int x = graph.input(dtype, channels_last(s.n, s.cin, s.h, s.w));
  if (s.transposed) {
    const int w = graph.input(dtype, channels_last(s.cin, s.cout, s.kernel_h, s.kernel_w));
    return graph.transposed_convolution(x, w, s.place, {s.n, s.cout, s.out_h, s.out_w});
  }
  return graph.convolution(x, graph.input(dtype, channels_last(s.cout, s.cin, s.kernel_h, s.kernel_w)), s.place);
}

using Operands = std::function<convolution::Operands(std::span<void* const>)>;  // of the pointers of Op::tensors

std::size_t upsampled_bytes(const Shape& s, DType dtype) {
  return s.upsample ? aligned(static_cast<std::size_t>(s.n * s.h * s.w * s.cin) * size_of(dtype)) : 0;
}
// Of a convolution in two graphs, the sums between them; the upsampled input lies before them.
std::size_t sums_bytes(const Shape& s, bool in_one) {
  return in_one ? 0 : aligned(static_cast<std::size_t>(s.n * s.out_h * s.out_w * s.cout) * sizeof(float));
}

// Binds a graph that makes the convolution's sums in fp32, what stands behind them, or both: its pointers in the order
// in which it declares them.
GraphsRun::Bind bind_graph(const Shape& s, DType dtype, const Operands& operands, bool convolves, bool finishes) {
  const std::size_t before_sums = upsampled_bytes(s, dtype);
  return [=](std::span<void* const> tensors, const Scratch& scratch) {
    const convolution::Operands o = operands(tensors);
    const void* const sums = static_cast<char*>(scratch.workspace) + before_sums;
    std::vector<const void*> pointers{sums};
    if (convolves) pointers = {s.upsample ? scratch.workspace : o.x, s.transposed ? scratch.prepared : o.w};
    if (!finishes) pointers.push_back(sums);
    for (const void* pointer : {o.bias, o.scale, o.shift, o.residual, static_cast<const void*>(o.y)})
      if (finishes && pointer != nullptr) pointers.push_back(pointer);
    std::vector<void*> writable;
    for (const void* pointer : pointers) writable.push_back(const_cast<void*>(pointer));
    return writable;
  };
}

// In one graph, or the convolution's sums in fp32 and then the rest. `has`: which operands the problem has. Throws
// LibraryRefused.
std::vector<GraphsRun::Stage> stages_of(const Shape& s, DType dtype, const convolution::Operands& has, bool in_one,
                                        const Algorithms& earlier, const Operands& operands) {
  std::vector<GraphsRun::Stage> stages;
  auto product = std::make_unique<Graph>();
  const int sums = add_convolution(*product, s, dtype);
  const auto bind = [&](bool convolves, bool finishes) { return bind_graph(s, dtype, operands, convolves, finishes); };
  if (in_one) {
    add_epilogue(*product, sums, s, dtype, has);
    stages.push_back({{std::move(product), kBuildConvolutionSeconds, earlier, 0}, bind(true, true)});
    return stages;
  }
  const Layout output = channels_last(s.n, s.cout, s.out_h, s.out_w);
  product->output(sums, DType::fp32, output);
  auto rest = std::make_unique<Graph>();
  add_epilogue(*rest, rest->pointwise(Pointwise::identity, rest->input(DType::fp32, output)), s, dtype, has);
  // Built first: its engines are the more likely to be missing, and then the convolution's need not be compiled.
  TunedGraph behind(std::move(rest), kBuildConvolutionSeconds, earlier, kWordsOfStage);
  stages.push_back({{std::move(product), kBuildConvolutionSeconds, earlier, 0}, bind(true, false)});
  stages.push_back({std::move(behind), bind(false, true)});
  return stages;
}

// The fastest row of resample that this device runs without a workspace.
const resample::Definition::Variant& upsampler(const resample::Problem& problem, DType dtype,
                                               const DeviceInfo& device) {
  const auto rows = resample::variants();
  for (auto row = rows.rbegin(); row != rows.rend(); ++row)
    if (row->launch != nullptr && runs_on(row->arch, device.compute_capability) && row->can_run(problem, dtype) &&
        (row->workspace_bytes == nullptr || row->workspace_bytes(problem, dtype, device) == 0))
      return *row;
  throw LibraryRefused("no variant of resample upsamples for cuDNN here");
}

class ConvolutionRun final : public GraphsRun {
 public:
  ConvolutionRun(const Shape& shape, DType dtype, const convolution::Operands& has, bool in_one,
                 const Algorithms& earlier, const Operands& operands, const DeviceInfo& device)
      : GraphsRun(stages_of(shape, dtype, has, in_one, earlier, operands),
                  upsampled_bytes(shape, dtype) + sums_bytes(shape, in_one)),
        shape_(shape),
        dtype_(dtype),
        operands_(operands) {
    if (!shape.upsample) return;
    up_ = {resample::Operation::nearest_up2, shape.n, shape.h / 2, shape.w / 2, shape.cin, 0};
    upsampler_ = &upsampler(up_, dtype, device);
  }

  std::size_t prepared_bytes() const override { return shape_.transposed ? 2 * weight_bytes() : 0; }
  // [cout, kh, kw, cin] -> [cout, cin, kh, kw] -> [cin, kh, kw, cout], by transpositions of ours; what is between lies
  // behind. Nothing waits here: a training step records it.
  Status prepare(std::span<void* const> pointers, void* prepared, const LaunchContext& context) override {
    using elementwise::Operation;
    void* const between = static_cast<char*>(prepared) + weight_bytes();
    const elementwise::Problem inner{
        .op = Operation::nhwc_to_nchw, .n = shape_.cout, .hw = taps(), .channels = shape_.cin},
        outer{.op = Operation::nhwc_to_nchw, .hw = shape_.cout, .channels = taps() * shape_.cin};
    const Status status =
        elementwise::launch_naive(inner, dtype_, {.a = operands_(pointers).w, .y = between}, {}, context);
    if (!status.ok()) return status;
    return elementwise::launch_naive(outer, dtype_, {.a = between, .y = prepared}, {}, context);
  }

  Status tune(std::span<void* const> pointers, const Scratch& scratch, const LaunchContext& context,
              Ranker& ranker) override {
    const Status status = upsample(pointers, scratch.workspace, context);
    return status.ok() ? GraphsRun::tune(pointers, scratch, context, ranker) : status;
  }
  Status launch(std::span<void* const> pointers, const Scratch& scratch, const LaunchContext& context,
                Caches caches) override {
    const Status status = upsample(pointers, scratch.workspace, context);
    return status.ok() ? GraphsRun::launch(pointers, scratch, context, caches) : status;
  }
  std::string description() const override {
    return (shape_.upsample ? std::string("resample/") + upsampler_->name + ", then " : "") + GraphsRun::description();
  }

 private:
  std::int64_t taps() const { return shape_.kernel_h * shape_.kernel_w; }
  std::size_t weight_bytes() const {
    return aligned(static_cast<std::size_t>(shape_.cout * taps() * shape_.cin) * size_of(dtype_));
  }
  Status upsample(std::span<void* const> pointers, void* workspace, const LaunchContext& context) const {
    if (!shape_.upsample) return success();
    return upsampler_->launch(up_, dtype_, {operands_(pointers).x, nullptr, workspace}, {}, context);
  }

  Shape shape_;
  DType dtype_;
  Operands operands_;
  resample::Problem up_;
  const resample::Definition::Variant* upsampler_ = nullptr;
};

template <class Definition, class Problem>
std::unique_ptr<BaselineRun> run_of(const Shape& shape, const Definition& definition, const Problem& problem,
                                    DType dtype, const DeviceInfo& device, const Algorithms& earlier) {
  const auto bind = [&definition, problem](std::span<void* const> pointers) {
    return definition.bind(problem, pointers);
  };
  static char any = 0;  // which operands a problem has is told by any address but null
  const convolution::Operands has =
      bind(std::vector<void*>(definition.tensors(problem, dtype).size(), static_cast<void*>(&any)));
  const auto in_one = [&](const Algorithms& words) {
    return std::make_unique<ConvolutionRun>(shape, dtype, has, true, words, bind, device);
  };
  const auto in_two = [&](const Algorithms& words) {
    return std::make_unique<ConvolutionRun>(shape, dtype, has, false, words, bind, device);
  };
  const bool something_behind =
      has.bias || has.scale || has.residual || shape.gain != 1 || shape.act != convolution::Activation::none;
  if (dtype == DType::fp32 && something_behind)
    return std::make_unique<FormsRun>(std::vector<Form>{{"one_graph", in_one}, {"two_launches", in_two}}, earlier);
  if (earlier.size() > kWordsOfStage) return in_two(earlier);
  try {
    return in_one(earlier);
  } catch (const LibraryRefused& refused) {
    try {
      if (earlier.empty()) return in_two(earlier);
    } catch (const LibraryRefused&) {
    }
    throw refused;  // says what the whole graph lacks
  }
}

Support can_run_conv2d(const AnyProblem& any, DType) {
  const auto& p = any.as<conv2d::Problem>();
  // cuDNN 9.19: of the engine configurations that it offers for such a graph, some end in "misaligned address", which
  // costs the process its device, and which ones differs between problems. For sums in fp32 with the shift behind them
  // it has none.
  if (p.image_shift)
    return unsupported("cuDNN's engines fail on a per-image bias: some with an illegal access while it is tuned");
  if (p.norm != conv2d::Norm::none)
    return unsupported("cuDNN's convolutions norm no input by coefficients per image and channel");
  if (p.side > 0) return unsupported("cuDNN's graphs add no second convolution's sums to those of the first");
  if (p.residual_upsample) return unsupported("cuDNN's graphs read no residual of half the height and width");
  if (p.stats) return unsupported("cuDNN's convolutions write no statistics per image and slab of pixels");
  return supported();
}

std::unique_ptr<BaselineRun> create_conv2d(const AnyProblem& any, DType dtype, const DeviceInfo& device,
                                           const Algorithms& earlier) {
  const auto& p = any.as<conv2d::Problem>();
  const std::int64_t times = p.upsample ? 2 : 1;
  Shape s{p.n,       p.h * times, p.w * times, p.cin,    p.out_h(),
          p.out_w(), p.cout,      p.kernel,    p.kernel, {{p.pad, p.pad}, {p.stride, p.stride}}};
  s.upsample = p.upsample;
  s.act = p.act;
  s.gain = p.gain;
  return run_of(s, conv2d::definition, p, dtype, device, earlier);
}

Support can_run_conv3d_temporal(const AnyProblem& any, DType) {
  if (!any.as<conv3d_temporal::Problem>().image_shift) return supported();
  return unsupported("not tried: cuDNN's engines fail on conv2d with a per-image bias, some with an illegal access");
}

// Frames are rows, the pixels of a frame columns.
std::unique_ptr<BaselineRun> create_conv3d_temporal(const AnyProblem& any, DType dtype, const DeviceInfo& device,
                                                    const Algorithms& earlier) {
  const auto& p = any.as<conv3d_temporal::Problem>();
  const Shape s{p.batch, p.frames, p.hw, p.cin, p.frames, p.hw, p.cout, 3, 1, {{1, 0}, {1, 1}}};
  return run_of(s, conv3d_temporal::definition, p, dtype, device, earlier);
}

std::unique_ptr<BaselineRun> create_conv_transpose2d(const AnyProblem& any, DType dtype, const DeviceInfo& device,
                                                     const Algorithms& earlier) {
  const auto& p = any.as<conv_transpose2d::Problem>();
  Shape s{p.n, p.h, p.w, p.cin, 2 * p.h, 2 * p.w, p.cout, p.kernel, p.kernel, {{p.pad(), p.pad()}, {2, 2}}};
  s.transposed = true;
  s.act = p.act;
  return run_of(s, conv_transpose2d::definition, p, dtype, device, earlier);
}

}  // namespace

Baseline conv2d_baseline() {
  return {"conv2d", "cudnn", can_run_conv2d, create_conv2d, version};
}
Baseline conv_transpose2d_baseline() {
  return {"conv_transpose2d", "cudnn", [](const AnyProblem&, DType) { return supported(); }, create_conv_transpose2d,
          version};
}
Baseline conv3d_temporal_baseline() {
  return {"conv3d_temporal", "cudnn", can_run_conv3d_temporal, create_conv3d_temporal, version};
}

}  // namespace noisefloor::cudnn
