// The oracle: each element of y from its place, in double.
#include "kernels/core/tensor.h"
#include "kernels/resample/resample.h"

namespace noisefloor::resample {

void reference(const Problem& p, DType dtype, const Tensors& t, std::string_view,
               std::span<const std::int64_t> elements, std::span<double> values) {
  const HostTensor x{dtype, t.x}, skip{dtype, t.skip};
  for (std::size_t e = 0; e < elements.size(); ++e) {
    const std::int64_t channel = elements[e] % p.out_channels(), pixel = elements[e] / p.out_channels();
    const std::int64_t column = pixel % p.out_w(), row = pixel / p.out_w();  // row: of all images
    const auto at = [&](std::int64_t r, std::int64_t c) { return x[(r * p.w + c) * p.channels + channel]; };
    if (p.op == Operation::nearest_up2) {
      values[e] = at(row / 2, column / 2);  // 2h is even: rows of different images never meet
    } else if (p.op == Operation::average_down2) {
      values[e] = (at(2 * row, 2 * column) + at(2 * row, 2 * column + 1) + at(2 * row + 1, 2 * column) +
                   at(2 * row + 1, 2 * column + 1)) /
                  4;
    } else {
      values[e] = channel < p.channels ? at(row, column) : skip[pixel * p.skip_channels + channel - p.channels];
    }
  }
}

}  // namespace noisefloor::resample
