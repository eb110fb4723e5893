#include "baselines/catalogue.h"

#include <vector>

namespace noisefloor {

std::span<const Baseline> baselines() {
#if defined(NOISEFLOOR_HAS_CUDA)
  static const std::vector<Baseline> rows = {
      cublaslt::gemm_baseline(),
      cudnn::attention_baseline(),
      cudnn::temporal_attention_baseline(),
      cudnn::groupnorm_baseline(),
      cudnn::sampler_step_baseline(),
  };
#else
  static const std::vector<Baseline> rows;
#endif
  return rows;
}

}  // namespace noisefloor
