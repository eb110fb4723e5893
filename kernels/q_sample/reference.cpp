// The oracle: the formula in double, one element at a time, from the levels as the tensor holds them.
#include "kernels/core/noise_stream.h"
#include "kernels/core/tensor.h"
#include "kernels/q_sample/q_sample.h"

namespace noisefloor::q_sample {

void reference(const Problem& p, DType dtype, const Tensors& t, std::string_view output,
               std::span<const std::int64_t> elements, std::span<double> values) {
  const HostTensor x0{dtype, t.x0}, noise{dtype, t.noise};
  const NoiseStream stream = noise_stream(p);
  for (std::size_t e = 0; e < elements.size(); ++e) {
    const std::int64_t i = elements[e], image = i / p.elements;
    const double z = noise ? noise[i] : noise_exact(stream, static_cast<std::uint64_t>(image), i % p.elements);
    const double alpha = t.levels[2 * image], sigma = t.levels[2 * image + 1];
    values[e] = output == "noise_out" ? z : alpha * x0[i] + sigma * z;
  }
}

}  // namespace noisefloor::q_sample
