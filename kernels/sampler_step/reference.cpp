// The oracle: the linear form of coefficients.h in double, one element at a time, from the coefficients as the tensor
// holds them.
#include <algorithm>

#include "kernels/core/noise_stream.h"
#include "kernels/sampler_step/sampler_step.h"

namespace noisefloor::sampler_step {

void Definition::reference(const Problem& problem, DType, std::span<const HostTensor> inputs, std::size_t output,
                           std::span<const std::int64_t> elements, std::span<double> values) {
  std::size_t next = 0;
  const auto take = [&](bool present) -> const HostTensor* { return present ? &inputs[next++] : nullptr; };
  const HostTensor& x = *take(true);
  const HostTensor& model = *take(true);
  const HostTensor* noise = take(problem.noise == Noise::given);
  const HostTensor* history = take(problem.reads_history());
  const HostTensor* previous = take(problem.blended());
  const HostTensor& coefficients = *take(true);
  const bool wants_x_next = output == next;

  const NoiseStream stream = noise_stream(problem);
  const auto c = [&](int column) { return coefficients[problem.step * kRowLength + column]; };
  for (std::size_t e = 0; e < elements.size(); ++e) {
    const std::int64_t i = elements[e];
    double x0 = c(0) * x[i] + c(1) * model[i];
    if (problem.guided()) x0 += c(2) * model[problem.total() + i];
    const double limit = c(3);
    if (x0 > limit) x0 = limit;
    if (x0 < -limit) x0 = -limit;
    if (!wants_x_next) {
      values[e] = c(9) * x[i] + c(10) * x0;
      continue;
    }
    double x_next = c(4) * x[i] + c(5) * x0;
    if (history) x_next += c(6) * (*history)[i];
    if (noise) x_next += c(7) * (*noise)[i];
    if (problem.noise == Noise::drawn)
      x_next += c(7) * noise_exact(stream, static_cast<std::uint64_t>(i / problem.elements), i % problem.elements);
    if (previous) x_next += c(8) * (*previous)[i];
    values[e] = x_next;
  }
}

}  // namespace noisefloor::sampler_step
