// The oracle: the linear form of coefficients.h in double, one element at a time, from the coefficients as the tensor
// holds them.
#include <algorithm>

#include "kernels/core/philox.h"
#include "kernels/sampler_step/element.h"
#include "kernels/sampler_step/sampler_step.h"

namespace noisefloor::sampler_step {
namespace {

double drawn_noise(const Problem& problem, std::int64_t element) {
  const NoiseStream stream = noise_stream(problem);
  const std::int64_t within = element % problem.elements;
  const Philox4 words = noise_words(stream, static_cast<std::uint64_t>(element / problem.elements),
                                    static_cast<std::uint32_t>(within / kNormalsPerBlock));
  const int pair = static_cast<int>(within % kNormalsPerBlock) / 2 * 2;
  return box_muller_exact(words.v[pair], words.v[pair + 1], static_cast<int>(within % 2));
}

}  // namespace

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
    if (problem.noise == Noise::drawn) x_next += c(7) * drawn_noise(problem, i);
    if (previous) x_next += c(8) * (*previous)[i];
    values[e] = x_next;
  }
}

}  // namespace noisefloor::sampler_step
