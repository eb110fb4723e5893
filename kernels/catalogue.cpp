#include "kernels/catalogue.h"

#include <vector>

#include "kernels/adamw/adamw.h"
#include "kernels/attention/attention.h"
#include "kernels/attention_backward/attention_backward.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/conv2d_dgrad/conv2d_dgrad.h"
#include "kernels/conv2d_wgrad/conv2d_wgrad.h"
#include "kernels/conv3d_temporal/conv3d_temporal.h"
#include "kernels/conv_transpose2d/conv_transpose2d.h"
#include "kernels/edm_precondition/edm_precondition.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/gemm/gemm.h"
#include "kernels/grad_norm/grad_norm.h"
#include "kernels/groupnorm/groupnorm.h"
#include "kernels/groupnorm_backward/groupnorm_backward.h"
#include "kernels/layernorm/layernorm.h"
#include "kernels/layernorm_backward/layernorm_backward.h"
#include "kernels/mse_loss/mse_loss.h"
#include "kernels/q_sample/q_sample.h"
#include "kernels/resample/resample.h"
#include "kernels/sampler_step/sampler_step.h"
#include "kernels/temporal_attention/temporal_attention.h"
#include "kernels/timestep_embedding/timestep_embedding.h"
#include "kernels/training_batch/training_batch.h"

namespace noisefloor {

std::span<const Op> catalogue() {
  static const std::vector<Op> ops = {
      make_op(attention::definition),
      make_op(temporal_attention::definition),
      make_op(gemm::definition),
      make_op(conv2d::definition),
      make_op(conv_transpose2d::definition),
      make_op(conv3d_temporal::definition),
      make_op(groupnorm::definition),
      make_op(sampler_step::definition),
      make_op(layernorm::definition),
      make_op(elementwise::definition),
      make_op(resample::definition),
      make_op(timestep_embedding::definition),
      make_op(q_sample::definition),
      make_op(edm_precondition::definition),
      make_op(groupnorm_backward::definition),
      make_op(conv2d_dgrad::definition),
      make_op(conv2d_wgrad::definition),
      make_op(layernorm_backward::definition),
      make_op(training_batch::definition),
      make_op(mse_loss::definition),
      make_op(grad_norm::definition),
      make_op(adamw::definition),
      make_op(attention_backward::definition),
  };
  return ops;
}

const Op* find_op(std::string_view name) {
  for (const Op& op : catalogue())
    if (op.name == name) return &op;
  return nullptr;
}

std::optional<HandedProblem> handed_on(std::string_view op, const AnyProblem& problem, DType dtype) {
  if (op != conv2d::definition.name) return std::nullopt;
  const auto& convolution = problem.as<conv2d::Problem>();
  if (!conv2d::can_run_pointwise(convolution, dtype)) return std::nullopt;
  const Op& product = *find_op(gemm::definition.name);
  return HandedProblem{product.name, product.print(AnyProblem(conv2d::product_of(convolution)))};
}

}  // namespace noisefloor
