// The rows that catalogue.cpp lists; each is defined in the file of its library and op.
#pragma once

#include "baselines/baseline.h"

namespace noisefloor::cublaslt {
Baseline gemm_baseline();
}  // namespace noisefloor::cublaslt

namespace noisefloor::cudnn {
Baseline attention_baseline();
Baseline conv2d_baseline();
Baseline conv_transpose2d_baseline();
Baseline conv3d_temporal_baseline();
Baseline groupnorm_baseline();
Baseline sampler_step_baseline();
Baseline temporal_attention_baseline();
}  // namespace noisefloor::cudnn
