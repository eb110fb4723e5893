// conv2d, conv3d_temporal and conv_transpose2d by cuDNN: one graph of the convolution and everything behind it,
// autotuned over the engine configurations that cuDNN's heuristics offer.
//
// Where no engine takes the whole graph, a convolution that leaves its sums in fp32 and a graph of pointwise operations
// behind it run as two launches; the row's description says so. In fp32, where fused engines are few, slow, or round to
// TF32, both forms are tuned if anything stands behind the sums, and the faster runs. A nearest-x2
// upsample before the convolution is a launch of this project's `resample`, since no engine of cuDNN reads through one;
// a second baseline runs such a problem as four phases of summed weights (cudnn_convolution_stages.h). A transposed
// convolution is the gradient of one; it wants the weights as [cin, kh, kw, cout], and gets a copy made once, when it
// is tuned.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "baselines/baseline.h"
#include "baselines/cudnn_convolution_stages.h"
#include "baselines/search.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/conv3d_temporal/conv3d_temporal.h"
#include "kernels/conv_transpose2d/conv_transpose2d.h"
#include "kernels/core/cuda_status.h"
#include "kernels/core/device.h"
#include "kernels/resample/resample.h"

namespace noisefloor::cudnn {
namespace {

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
    if (shape.four_phases)
      sums_bytes_ =
          aligned(static_cast<std::size_t>(shape.n * (shape.h + 1) * (shape.w + 1) * 4 * shape.cout) * sizeof(float));
    else if (stages_.size() > 1)
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

  std::size_t prepared_bytes() const override {
    if (shape_.four_phases) return convolution::summed_weight_bytes(shape_.cin, shape_.cout, dtype_);
    return shape_.transposed ? static_cast<std::size_t>(shape_.cout * taps() * shape_.cin) * size_of(dtype_) : 0;
  }
  // [cout, kh, kw, cin] -> [cin, kh, kw, cout], by way of the host; or the sums of four phases.
  Status prepare(std::span<void* const> pointers, void* prepared, const LaunchContext& context) override {
    if (shape_.four_phases)
      return convolution::sum_upsampled_weights(shape_.cin, shape_.cout, dtype_, bind_(pointers).w, prepared, context);
    std::vector<char> stored(prepared_bytes()), turned(prepared_bytes());
    NOISEFLOOR_CUDA(cudaStreamSynchronize(context.stream));
    NOISEFLOOR_CUDA(cudaMemcpy(stored.data(), bind_(pointers).w, stored.size(), cudaMemcpyDeviceToHost));
    for (std::int64_t out = 0; out < shape_.cout; ++out)
      for (std::int64_t tap = 0; tap < taps(); ++tap)
        for (std::int64_t in = 0; in < shape_.cin; ++in)
          store_element(dtype_, turned.data(), (in * taps() + tap) * shape_.cout + out,
                        load_element(dtype_, stored.data(), (out * taps() + tap) * shape_.cin + in));
    NOISEFLOOR_CUDA(cudaMemcpy(prepared, turned.data(), turned.size(), cudaMemcpyHostToDevice));
    return success();
  }

  Status tune(std::span<void* const> pointers, const Scratch& scratch, const LaunchContext& context,
              Ranker& ranker) override {
    if (const Status status = upsample(pointers, scratch.workspace, context); !status.ok()) return status;
    // What stands behind the sums first: with it the convolutions are judged.
    for (std::size_t i = stages_.size(); i-- > 0;) {
      const auto judged = [&] { return launch(pointers, scratch, context, Caches::cold); };
      const Status status =
          stages_[i].graph.tune(bound_pointers(stages_[i], pointers, scratch, 0), graph_workspace(scratch.workspace),
                                context.stream, ranker, i == 0 ? judged : TunedGraph::Launch());
      if (!status.ok()) return status;
      if (i > 0) stages_[i].graph.use_warm_always();
    }
    return success();
  }

  Status launch(std::span<void* const> pointers, const Scratch& scratch, const LaunchContext& context,
                Caches caches) override {
    if (const Status status = upsample(pointers, scratch.workspace, context); !status.ok()) return status;
    for (Stage& stage : stages_)
      for (int phase = 0; phase < stage.launches; ++phase) {
        const Status status = stage.graph.execute(caches, bound_pointers(stage, pointers, scratch, phase),
                                                  graph_workspace(scratch.workspace), context.stream);
        if (!status.ok()) return status;
      }
    return success();
  }

  std::string description() const override {
    std::string text = shape_.upsample ? std::string("resample/") + upsampler_->name + ", then " : std::string();
    for (const Stage& stage : stages_) {
      text += &stage == &stages_.front() ? "cuDNN " : ", then ";
      if (stage.launches > 1) text += "for each phase ";
      text += stage.graph.description();
    }
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
  std::vector<void*> bound_pointers(const Stage& stage, std::span<void* const> pointers, const Scratch& scratch,
                                    int phase) const {
    convolution::Operands o = bind_(pointers);
    if (shape_.upsample) o.x = scratch.workspace;
    if (shape_.transposed || shape_.four_phases) o.w = scratch.prepared;
    return stage.bind(o, sums(scratch.workspace), phase);
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
  const auto in = [&](auto* stages, const Algorithms& words) {
    return std::make_unique<ConvolutionRun>(shape, dtype, stages(shape, dtype, has, words), bind, device);
  };
  if (shape.four_phases) return in(four_phase_stages, earlier);
  const bool something_behind =
      has.bias || has.scale || has.residual || shape.gain != 1 || shape.act != convolution::Activation::none;
  if (dtype == DType::fp32 && something_behind) {
    const std::vector<Form> forms{
        {"one_graph", [&](const Algorithms& words) { return in(fused_stage, words); }},
        {"two_launches", [&](const Algorithms& words) { return in(separate_stages, words); }}};
    return std::make_unique<FormsRun>(forms, earlier);
  }
  if (earlier.size() > kWordsOfStage) return in(separate_stages, earlier);
  try {
    return in(fused_stage, earlier);
  } catch (const LibraryRefused& refused) {
    try {
      if (earlier.empty()) return in(separate_stages, earlier);
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

Support can_run_four_phases(const AnyProblem& any, DType dtype) {
  const auto& p = any.as<conv2d::Problem>();
  if (!p.upsample) return unsupported("there are four phases where the image is upsampled first");
  if (p.cout % 8 != 0) return unsupported("a phase of the output must be aligned to 16 bytes for a cuDNN graph");
  return can_run_conv2d(any, dtype);
}

template <bool kFourPhases>
std::unique_ptr<BaselineRun> create_conv2d(const AnyProblem& any, DType dtype, const DeviceInfo& device,
                                           const Algorithms& earlier) {
  const auto& p = any.as<conv2d::Problem>();
  const std::int64_t times = p.upsample ? 2 : 1;
  Shape s{p.n,       p.h * times, p.w * times, p.cin,    p.out_h(),
          p.out_w(), p.cout,      p.kernel,    p.kernel, {{p.pad, p.pad}, {p.stride, p.stride}}};
  if (kFourPhases) s = {p.n, p.h, p.w, p.cin, p.h, p.w, p.cout, 2, 2, {{1, 1}, {1, 1}}};
  s.four_phases = kFourPhases;
  s.upsample = p.upsample && !kFourPhases;
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

Support can_run_any(const AnyProblem&, DType) {
  return supported();
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
  return {"conv2d", "cudnn", can_run_conv2d, create_conv2d<false>, version};
}
Baseline conv2d_four_phases_baseline() {
  return {"conv2d", "cudnn_four_phases", can_run_four_phases, create_conv2d<true>, version};
}
Baseline conv_transpose2d_baseline() {
  return {"conv_transpose2d", "cudnn", can_run_any, create_conv_transpose2d, version};
}
Baseline conv3d_temporal_baseline() {
  return {"conv3d_temporal", "cudnn", can_run_conv3d_temporal, create_conv3d_temporal, version};
}

}  // namespace noisefloor::cudnn
