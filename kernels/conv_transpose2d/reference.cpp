// The oracle: the definition in conv_transpose2d.h term by term, in double. It asks every input and tap near an output
// whether they meet there, and knows nothing of phases.
#include <vector>

#include "kernels/conv_transpose2d/conv_transpose2d.h"
#include "kernels/core/exact.h"
#include "kernels/core/parallel.h"
#include "kernels/core/tensor.h"

namespace noisefloor::conv_transpose2d {
namespace {

double activate(Activation act, double x) {
  return act == Activation::silu ? exact::silu(x) : act == Activation::relu ? exact::relu(x) : x;
}

}  // namespace

void reference(const Problem& p, DType dtype, const Tensors& t, std::string_view,
               std::span<const std::int64_t> elements, std::span<double> values) {
  const HostTensor x{dtype, t.x}, w{dtype, t.w}, bias{dtype, t.bias};
  constexpr std::int64_t kElementsPerTask = 64;
  parallel_for(static_cast<std::int64_t>(elements.size()), kElementsPerTask, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> pixel(static_cast<std::size_t>(p.cin)), weights(static_cast<std::size_t>(p.cin));
    for (std::int64_t e = begin; e < end; ++e) {
      const std::int64_t element = elements[static_cast<std::size_t>(e)];
      const std::int64_t channel = element % p.cout;
      const std::int64_t ox = element / p.cout % (2 * p.w);
      const std::int64_t oy = element / p.cout / (2 * p.w) % (2 * p.h);
      const std::int64_t image = element / p.cout / (4 * p.h * p.w);
      double sum = bias ? bias[channel] : 0;
      for (std::int64_t ky = 0; ky < p.kernel; ++ky)
        for (std::int64_t kx = 0; kx < p.kernel; ++kx) {
          const std::int64_t y2 = oy + p.pad() - ky;  // 2 iy
          const std::int64_t x2 = ox + p.pad() - kx;
          if (y2 < 0 || x2 < 0 || y2 % 2 != 0 || x2 % 2 != 0 || y2 / 2 >= p.h || x2 / 2 >= p.w) continue;
          load_floats(x.dtype, x.data, ((image * p.h + y2 / 2) * p.w + x2 / 2) * p.cin, p.cin, pixel.data());
          load_floats(w.dtype, w.data, ((channel * p.kernel + ky) * p.kernel + kx) * p.cin, p.cin, weights.data());
          sum += exact::dot(pixel, weights);
        }
      values[static_cast<std::size_t>(e)] = activate(p.act, sum);
    }
  });
}

}  // namespace noisefloor::conv_transpose2d
