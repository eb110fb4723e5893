#include "kernels/catalogue.h"

#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/conv3d_temporal/conv3d_temporal.h"
#include "kernels/conv_transpose2d/conv_transpose2d.h"
#include "kernels/edm_precondition/edm_precondition.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/gemm/gemm.h"
#include "kernels/groupnorm/groupnorm.h"
#include "kernels/layernorm/layernorm.h"
#include "kernels/q_sample/q_sample.h"
#include "kernels/resample/resample.h"
#include "kernels/sampler_step/sampler_step.h"
#include "kernels/temporal_attention/temporal_attention.h"
#include "kernels/timestep_embedding/timestep_embedding.h"

namespace noisefloor {

std::span<const Op> catalogue() {
  static const std::vector<Op> ops = {
      make_op<attention::Definition>(),
      make_op<temporal_attention::Definition>(),
      make_op<gemm::Definition>(),
      make_op<conv2d::Definition>(),
      make_op<conv_transpose2d::Definition>(),
      make_op<conv3d_temporal::Definition>(),
      make_op<groupnorm::Definition>(),
      make_op<sampler_step::Definition>(),
      make_op<layernorm::Definition>(),
      make_op<elementwise::Definition>(),
      make_op<resample::Definition>(),
      make_op<timestep_embedding::Definition>(),
      make_op<q_sample::Definition>(),
      make_op<edm_precondition::Definition>(),
  };
  return ops;
}

const Op* find_op(std::string_view name) {
  for (const Op& op : catalogue())
    if (op.name == name) return &op;
  return nullptr;
}

}  // namespace noisefloor
