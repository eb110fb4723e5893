// groupnorm's cuDNN row, which says why it cannot run. What cuDNN 9.19 answered on an H200:
//   - The normalisation operation has a mode GROUP_NORM, but takes no number of groups.
//   - Sums: its engines reduce to one value per channel of the whole batch, one per pixel, or one per tensor ("column,
//   row or all"),
//     in NHWC order only. One per image and group, over some channels and all pixels, is refused, however the groups
//     are described.
//   - Pointwise operations take tensors in NHWC order without gaps, and broadcast no value per image and group.
//   - An instance norm whose channels are the groups, with the strides that groups have in channels-last memory, does
//   run (about ten
//     times slower than PyTorch's group_norm), but gamma and beta belong to channels, not groups: they would need a
//     second graph, with the normalised tensor rounded in between.

#include "baselines/baseline.h"

namespace noisefloor::cudnn {
namespace {

constexpr const char* kReason =
    "cuDNN's graphs cannot express group norm of channels-last tensors: the norm operation takes no number of groups, "
    "and no engine "
    "reduces to one value per image and group";

Support can_run(const AnyProblem&, DType) {
  return unsupported(kReason);
}

std::unique_ptr<BaselineRun> create(const AnyProblem&, DType, const DeviceInfo&, const Algorithms&) {
  throw LibraryRefused(kReason);
}

}  // namespace

Baseline groupnorm_baseline() {
  return {"groupnorm", "cudnn", can_run, create};
}

}  // namespace noisefloor::cudnn
