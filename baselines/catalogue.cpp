// The baselines, in the order of their ops: a baseline is its file (<library>_<op>.cpp), and here its declaration and
// row.
#include <vector>

#include "baselines/baseline.h"

namespace noisefloor::cublaslt {
long version();  // throws LibraryMissing
Baseline gemm_baseline();
}  // namespace noisefloor::cublaslt

namespace noisefloor::cudnn {
#if defined(NOISEFLOOR_HAS_CUDNN)
long version();
Baseline attention_baseline();
Baseline conv2d_baseline();
Baseline conv2d_dgrad_baseline();
Baseline conv2d_wgrad_baseline();
Baseline conv_transpose2d_baseline();
Baseline conv3d_temporal_baseline();
Baseline sampler_step_baseline();
Baseline temporal_attention_baseline();
// What cuDNN 9.19 answered on an H200: its norm operation has a mode GROUP_NORM and takes no number of groups. Its
// engines reduce in NHWC order to one value per channel, pixel or tensor, and broadcast none per image and group. Its
// instance norm of channels that are the groups runs, ten times slower than PyTorch's group_norm, but gamma and beta
// belong to channels: a second graph, with the normed tensor rounded in between.
static Baseline groupnorm_baseline() {
  static constexpr const char* kReason =
      "cuDNN's graphs cannot express group norm of channels-last tensors: the norm operation takes no number of "
      "groups, "
      "and no engine reduces to one value per image and group";
  return {"groupnorm", "cudnn", [](const AnyProblem&, DType) { return unsupported(kReason); },
          [](const AnyProblem&, DType, const DeviceInfo&, const Algorithms&) -> std::unique_ptr<BaselineRun> {
            throw LibraryRefused(kReason);
          }};
}
#elif defined(NOISEFLOOR_HAS_CUDA)
[[noreturn]] static long version() {
  throw LibraryMissing(
      "this build has no cuDNN: its headers or those of cudnn-frontend were not found at configure time");
}
// Its row, which says so.
static Baseline missing(const char* op) {
  return {op, "cudnn", [](const AnyProblem&, DType) { return supported(); },
          [](const AnyProblem&, DType, const DeviceInfo&, const Algorithms&) -> std::unique_ptr<BaselineRun> {
            version();
          }};
}
#endif
}  // namespace noisefloor::cudnn

namespace noisefloor {

std::span<const Baseline> baselines() {
#if defined(NOISEFLOOR_HAS_CUDA)
  // clang-format off
  static const std::vector<Baseline> rows = {
      cublaslt::gemm_baseline(),
#if defined(NOISEFLOOR_HAS_CUDNN)
      cudnn::attention_baseline(),
      cudnn::temporal_attention_baseline(),
      cudnn::conv2d_baseline(),
      cudnn::conv2d_dgrad_baseline(),
      cudnn::conv2d_wgrad_baseline(),
      cudnn::conv_transpose2d_baseline(),
      cudnn::conv3d_temporal_baseline(),
      cudnn::groupnorm_baseline(),
      cudnn::sampler_step_baseline(),
#else
      cudnn::missing("attention"), cudnn::missing("temporal_attention"), cudnn::missing("conv2d"),
      cudnn::missing("conv_transpose2d"), cudnn::missing("conv3d_temporal"), cudnn::missing("groupnorm"),
      cudnn::missing("sampler_step"), cudnn::missing("conv2d_dgrad"), cudnn::missing("conv2d_wgrad"),
#endif
  };
  // clang-format on
#else
  static const std::vector<Baseline> rows;
#endif
  return rows;
}

std::vector<std::pair<std::string, std::string>> library_versions() {
  std::vector<std::pair<std::string, std::string>> versions;
#if defined(NOISEFLOOR_HAS_CUDA)
  const std::pair<const char*, long (*)()> libraries[] = {{"cublaslt", cublaslt::version}, {"cudnn", cudnn::version}};
  for (const auto& [name, version_of] : libraries) {
    try {
      const long version = version_of();  // both count as 10,000 x major + 100 x minor + patch
      versions.emplace_back(name, std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
                                      std::to_string(version % 100));
    } catch (const LibraryMissing&) {  // its rows say so
    }
  }
#endif
  return versions;
}

}  // namespace noisefloor
