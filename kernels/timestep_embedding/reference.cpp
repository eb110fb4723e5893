// The oracle: the formulas in double; the hidden layer of an image once for its elements.
#include <cmath>
#include <numbers>
#include <vector>

#include "kernels/core/exact.h"
#include "kernels/core/tensor.h"
#include "kernels/timestep_embedding/timestep_embedding.h"

namespace noisefloor::timestep_embedding {
namespace {

double embedding(const Problem& p, const Tensors& t, std::int64_t image, std::int64_t channel) {
  const std::int64_t k = channel % p.half();
  const double last = static_cast<double>(p.endpoint ? p.half() - 1 : p.half());
  const double frequency = p.fourier() ? 2 * std::numbers::pi * static_cast<double>(t.freqs[k])
                                       : std::pow(p.max_period, -static_cast<double>(k) / last);
  const bool first_half = channel < p.half();
  const double angle = static_cast<double>(t.t[image]) * frequency;
  return first_half == (p.order == Order::cos_sin) ? std::cos(angle) : std::sin(angle);
}

}  // namespace

void reference(const Problem& p, DType dtype, const Tensors& t, std::string_view,
               std::span<const std::int64_t> elements, std::span<double> values) {
  const HostTensor w1{dtype, t.w1}, b1{dtype, t.b1}, w2{dtype, t.w2}, b2{dtype, t.b2};
  const auto size = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  std::vector<double> e(size(p.channels)), hidden(size(p.hidden));
  std::int64_t known_image = -1;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const std::int64_t image = elements[i] / p.width(), at = elements[i] % p.width();
    if (!p.perceptron()) {
      values[i] = embedding(p, t, image, at);
      continue;
    }
    if (image != known_image) {
      known_image = image;
      for (std::int64_t c = 0; c < p.channels; ++c) e[size(c)] = embedding(p, t, image, c);
      for (std::int64_t h = 0; h < p.hidden; ++h) {
        double sum = b1[h];
        for (std::int64_t c = 0; c < p.channels; ++c) sum += w1[h * p.channels + c] * e[size(c)];
        hidden[size(h)] = exact::silu(sum);
      }
    }
    double sum = b2[at];
    for (std::int64_t h = 0; h < p.hidden; ++h) sum += w2[at * p.hidden + h] * hidden[size(h)];
    values[i] = p.final_silu ? exact::silu(sum) : sum;
  }
}

}  // namespace noisefloor::timestep_embedding
