#include "kernels/catalogue.h"

#include <vector>

#include "kernels/conv2d/conv2d.h"
#include "kernels/gemm/gemm.h"
#include "kernels/groupnorm/groupnorm.h"
#include "kernels/sampler_step/sampler_step.h"

namespace noisefloor {

std::span<const Op> catalogue() {
  static const std::vector<Op> ops = {
      make_op<gemm::Definition>(),
      make_op<conv2d::Definition>(),
      make_op<groupnorm::Definition>(),
      make_op<sampler_step::Definition>(),
  };
  return ops;
}

const Op* find_op(std::string_view name) {
  for (const Op& op : catalogue())
    if (op.name == name) return &op;
  return nullptr;
}

}  // namespace noisefloor
