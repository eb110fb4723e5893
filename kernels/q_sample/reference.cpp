// The oracle: the formula in double, one element at a time, from the levels as the tensor holds them.
#include "kernels/core/noise_stream.h"
#include "kernels/q_sample/q_sample.h"

namespace noisefloor::q_sample {

void Definition::reference(const Problem& p, DType, std::span<const HostTensor> inputs, std::size_t output,
                           std::span<const std::int64_t> elements, std::span<double> values) {
  const bool given = p.noise == Noise::given;
  const HostTensor& x0 = inputs[0];
  const HostTensor& levels = inputs[given ? 2 : 1];
  const bool wants_noise = p.keep && output == 3;
  const NoiseStream stream = noise_stream(p);
  for (std::size_t e = 0; e < elements.size(); ++e) {
    const std::int64_t i = elements[e], image = i / p.elements;
    const double z = given ? inputs[1][i] : noise_exact(stream, static_cast<std::uint64_t>(image), i % p.elements);
    values[e] = wants_noise ? z : levels[2 * image] * x0[i] + levels[2 * image + 1] * z;
  }
}

}  // namespace noisefloor::q_sample
