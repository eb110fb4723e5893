// The oracle: the formulas in double, one element at a time.
#include <cmath>

#include "kernels/edm_precondition/edm_precondition.h"

namespace noisefloor::edm_precondition {

void Definition::reference(const Problem& p, DType, std::span<const HostTensor> inputs, std::size_t output,
                           std::span<const std::int64_t> elements, std::span<double> values) {
  const bool behind = p.side == Side::output;
  const HostTensor& x = inputs[0];
  const HostTensor& sigmas = inputs[behind ? 2 : 1];
  const bool wants_c_noise = !behind && output == 3;
  for (std::size_t e = 0; e < elements.size(); ++e) {
    const std::int64_t i = elements[e];
    const double sigma = sigmas[wants_c_noise ? i : i / p.elements];
    const double variance = sigma * sigma + p.sigma_data * p.sigma_data;
    if (wants_c_noise)
      values[e] = std::log(sigma) / 4;
    else if (behind)
      values[e] =
          p.sigma_data * p.sigma_data / variance * x[i] + sigma * p.sigma_data / std::sqrt(variance) * inputs[1][i];
    else
      values[e] = x[i] / std::sqrt(variance);
  }
}

}  // namespace noisefloor::edm_precondition
