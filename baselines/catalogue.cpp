#include "baselines/catalogue.h"

#include <vector>

namespace noisefloor {

std::span<const Baseline> baselines() {
#if defined(NOISEFLOOR_HAS_CUDA)
  // clang-format off
  static const std::vector<Baseline> rows = {
      cublaslt::gemm_baseline(),
      cudnn::attention_baseline(),
      cudnn::temporal_attention_baseline(),
      cudnn::conv2d_baseline(),
      cudnn::conv_transpose2d_baseline(),
      cudnn::conv3d_temporal_baseline(),
      cudnn::groupnorm_baseline(),
      cudnn::sampler_step_baseline(),
  };
  // clang-format on
#else
  static const std::vector<Baseline> rows;
#endif
  return rows;
}

}  // namespace noisefloor
