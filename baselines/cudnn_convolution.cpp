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

constexpr double kBuildConvolutionSeconds = 12;  // engines compile in up to a second each
constexpr std::size_t kWordsOfStage = 2;         // of a choice

// What the three ops have in common. x is what the convolution reads, after any upsampling.
struct Shape {
  std::int64_t n, h, w, cin, out_h, out_w, cout, kernel_h, kernel_w;
  ConvolutionPlace place;
  bool transposed = false;
  bool upsample = false;
  convolution::Activation act = convolution::Activation::none;
  double gain = 1;
};

// A graph: the convolution's sums in fp32, what stands behind them, or both.
struct Stage {
  TunedGraph graph;
  bool convolves, finishes;

  // In the order in which the graph declares them; `sums` stand between two stages.
  std::vector<void*> bind(const convolution::Operands& o, void* sums) const {
    std::vector<const void*> pointers{sums};
    if (convolves) pointers = {o.x, o.w};
    if (!finishes) pointers.push_back(sums);
    for (const void* pointer : {o.bias, o.scale, o.shift, o.residual, static_cast<const void*>(o.y)})
      if (finishes && pointer != nullptr) pointers.push_back(pointer);
    std::vector<void*> writable;
    for (const void* pointer : pointers) writable.push_back(const_cast<void*>(pointer));
    return writable;
  }
};

Layout images(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
  return {{n, c, h, w}, {c * h * w, 1, c * w, c}};
}

// The epilogue of convolution.h behind `node`; `has` says which operands there are by their pointers.
void add_epilogue(Graph& graph, int node, const Shape& s, DType dtype, const convolution::Operands& has) {
  const Layout per_channel = images(1, s.cout, 1, 1), output = images(s.n, s.cout, s.out_h, s.out_w);
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
  const int x = graph.input(dtype, images(s.n, s.cin, s.h, s.w));
  if (s.transposed) {
    const int w = graph.input(dtype, images(s.cin, s.cout, s.kernel_h, s.kernel_w));
    return graph.transposed_convolution(x, w, s.place, {s.n, s.cout, s.out_h, s.out_w});
  }
  return graph.convolution(x, graph.input(dtype, images(s.cout, s.cin, s.kernel_h, s.kernel_w)), s.place);
}

// In one graph, or the convolution's sums in fp32 and then the rest. `has`: which operands the problem has. Throws
// LibraryRefused.
std::vector<Stage> stages_of(const Shape& s, DType dtype, const convolution::Operands& has, bool in_one,
                             const Algorithms& earlier) {
  std::vector<Stage> stages;
  auto product = std::make_unique<Graph>();
  const int sums = add_convolution(*product, s, dtype);
  if (in_one) {
    add_epilogue(*product, sums, s, dtype, has);
    stages.push_back({{std::move(product), kBuildConvolutionSeconds, earlier, 0}, true, true});
    return stages;
  }
  const Layout output = images(s.n, s.cout, s.out_h, s.out_w);
  product->output(sums, DType::fp32, output);
  auto rest = std::make_unique<Graph>();
  add_epilogue(*rest, rest->pointwise(Pointwise::identity, rest->input(DType::fp32, output)), s, dtype, has);
  // Built first: its engines are the more likely to be missing, and then the convolution's need not be compiled.
  TunedGraph behind(std::move(rest), kBuildConvolutionSeconds, earlier, kWordsOfStage);
  stages.push_back({{std::move(product), kBuildConvolutionSeconds, earlier, 0}, true, false});
  stages.push_back({std::move(behind), false, true});
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

class ConvolutionRun final : public BaselineRun {
 public:
  using Bind = std::function<convolution::Operands(std::span<void* const>)>;

  ConvolutionRun(const Shape& shape, DType dtype, std::vector<Stage> stages, Bind bind, const DeviceInfo& device)
      : shape_(shape), dtype_(dtype), bind_(std::move(bind)), stages_(std::move(stages)) {
    if (stages_.size() > 1)
      sums_bytes_ = aligned(static_cast<std::size_t>(shape.n * shape.out_h * shape.out_w * shape.cout) * sizeof(float));
    if (!shape.upsample) return;
    up_ = {resample::Operation::nearest_up2, shape.n, shape.h / 2, shape.w / 2, shape.cin, 0};
    upsampler_ = &upsampler(up_, dtype, device);
    image_bytes_ = aligned(static_cast<std::size_t>(shape.n * shape.h * shape.w * shape.cin) * size_of(dtype));
  }

  std::size_t workspace_bytes() const override {
    std::size_t most = 0;
    for (const Stage& stage : stages_) most = std::max(most, stage.graph.workspace_bytes());
    return image_bytes_ + sums_bytes_ + most;
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
    const Status status = elementwise::launch_naive(inner, dtype_, {.a = bind_(pointers).w, .y = between}, {}, context);
    if (!status.ok()) return status;
    return elementwise::launch_naive(outer, dtype_, {.a = between, .y = prepared}, {}, context);
  }

  Status tune(std::span<void* const> pointers, const Scratch& scratch, const LaunchContext& context,
              Ranker& ranker) override {
    if (const Status status = upsample(pointers, scratch.workspace, context); !status.ok()) return status;
    // What stands behind the sums first: with it the convolutions are judged.
    for (std::size_t i = stages_.size(); i-- > 0;) {
      const auto judged = [&] { return launch(pointers, scratch, context, Caches::cold); };
      const Status status =
          stages_[i].graph.tune(bound_pointers(stages_[i], pointers, scratch), graph_workspace(scratch.workspace),
                                context.stream, ranker, i == 0 ? judged : TunedGraph::Launch());
      if (!status.ok()) return status;
      if (i > 0) stages_[i].graph.use_warm_always();
    }
    return success();
  }

  Status launch(std::span<void* const> pointers, const Scratch& scratch, const LaunchContext& context,
                Caches caches) override {
    if (const Status status = upsample(pointers, scratch.workspace, context); !status.ok()) return status;
    for (Stage& stage : stages_) {
      const Status status = stage.graph.execute(caches, bound_pointers(stage, pointers, scratch),
                                                graph_workspace(scratch.workspace), context.stream);
      if (!status.ok()) return status;
    }
    return success();
  }

  std::string description() const override {
    std::string text = shape_.upsample ? std::string("resample/") + upsampler_->name + ", then " : std::string();
    for (const Stage& stage : stages_)
      text += (&stage == &stages_.front() ? "cuDNN " : ", then ") + stage.graph.description();
    return text;
  }
  Algorithms algorithms() const override {
    Algorithms words;
    for (const Stage& stage : stages_) stage.graph.append_algorithms(words);
    return words;
  }

 private:
  void* sums(void* workspace) const { return static_cast<char*>(workspace) + image_bytes_; }
  void* graph_workspace(void* workspace) const {
    return workspace == nullptr ? nullptr : static_cast<char*>(workspace) + image_bytes_ + sums_bytes_;
  }
  std::int64_t taps() const { return shape_.kernel_h * shape_.kernel_w; }
  std::size_t weight_bytes() const {
    return aligned(static_cast<std::size_t>(shape_.cout * taps() * shape_.cin) * size_of(dtype_));
  }
  std::vector<void*> bound_pointers(const Stage& stage, std::span<void* const> pointers, const Scratch& scratch) const {
    convolution::Operands o = bind_(pointers);
    if (shape_.upsample) o.x = scratch.workspace;
    if (shape_.transposed) o.w = scratch.prepared;
    return stage.bind(o, sums(scratch.workspace));
  }
  Status upsample(std::span<void* const> pointers, void* workspace, const LaunchContext& context) const {
    if (!shape_.upsample) return success();
    return upsampler_->launch(up_, dtype_, {bind_(pointers).x, nullptr, workspace}, {}, context);
  }

  Shape shape_;
  DType dtype_;
  Bind bind_;
  std::vector<Stage> stages_;
  resample::Problem up_;
  const resample::Definition::Variant* upsampler_ = nullptr;
  std::size_t image_bytes_ = 0;  // of the upsampled input
  std::size_t sums_bytes_ = 0;   // of the sums between two stages
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
    return std::make_unique<ConvolutionRun>(shape, dtype, stages_of(shape, dtype, has, true, words), bind, device);
  };
  const auto in_two = [&](const Algorithms& words) {
    return std::make_unique<ConvolutionRun>(shape, dtype, stages_of(shape, dtype, has, false, words), bind, device);
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
