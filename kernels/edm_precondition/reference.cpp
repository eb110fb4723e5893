// The oracle: the formulas in double, one element at a time.
#include <cmath>

#include "kernels/core/tensor.h"
#include "kernels/edm_precondition/edm_precondition.h"

namespace noisefloor::edm_precondition {

void reference(const Problem& p, DType dtype, const Tensors& t, std::string_view output,
               std::span<const std::int64_t> elements, std::span<double> values) {
  const HostTensor x{dtype, t.x}, f{dtype, t.f};
  const bool wants_c_noise = output == "c_noise";
  for (std::size_t e = 0; e < elements.size(); ++e) {
    const std::int64_t i = elements[e];
    const double sigma = t.sigma[wants_c_noise ? i : i / p.elements];
    const double variance = sigma * sigma + p.sigma_data * p.sigma_data;
    if (wants_c_noise)
      values[e] = std::log(sigma) / 4;
    else if (f)
      values[e] = p.sigma_data * p.sigma_data / variance * x[i] + sigma * p.sigma_data / std::sqrt(variance) * f[i];
    else
      values[e] = x[i] / std::sqrt(variance);
  }
}

}  // namespace noisefloor::edm_precondition
