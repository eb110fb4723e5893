// The oracle: the linear form of coefficients.h in double, one element at a time, from the coefficients as the tensor
// holds them.

#include "kernels/core/noise_stream.h"
#include "kernels/core/tensor.h"
#include "kernels/sampler_step/sampler_step.h"

namespace noisefloor::sampler_step {

void reference(const Problem& problem, DType dtype, const Tensors& t, std::string_view output,
               std::span<const std::int64_t> elements, std::span<double> values) {
  const HostTensor x{dtype, t.x}, model{dtype, t.model_output};
  const HostTensor noise{dtype, t.noise}, history{dtype, t.history}, previous{dtype, t.previous_frame};

  const NoiseStream stream = noise_stream(problem);
  const auto c = [&](int column) { return static_cast<double>(t.coefficients[problem.step * kRowLength + column]); };
  for (std::size_t e = 0; e < elements.size(); ++e) {
    const std::int64_t i = elements[e];
    double x0 = c(0) * x[i] + c(1) * model[i];
    if (problem.guided()) x0 += c(2) * model[problem.total() + i];
    const double limit = c(3);
    if (x0 > limit) x0 = limit;
    if (x0 < -limit) x0 = -limit;
    if (output == "history_out") {
      values[e] = c(9) * x[i] + c(10) * x0;
      continue;
    }
    double x_next = c(4) * x[i] + c(5) * x0;
    if (history) x_next += c(6) * history[i];
    if (noise) x_next += c(7) * noise[i];
    if (problem.noise == Noise::drawn)
      x_next += c(7) * noise_exact(stream, static_cast<std::uint64_t>(i / problem.elements), i % problem.elements);
    if (previous) x_next += c(8) * previous[i];
    values[e] = x_next;
  }
}

}  // namespace noisefloor::sampler_step
