// The oracle: the definition in conv3d_temporal.h term by term, in double.
#include <vector>

#include "kernels/conv3d_temporal/conv3d_temporal.h"
#include "kernels/core/exact.h"
#include "kernels/core/parallel.h"
#include "kernels/core/tensor.h"

namespace noisefloor::conv3d_temporal {

void reference(const Problem& p, DType dtype, const Tensors& t, std::string_view,
               std::span<const std::int64_t> elements, std::span<double> values) {
  const HostTensor x{dtype, t.x}, w{dtype, t.w}, bias{dtype, t.bias};
  const HostTensor image_shift{dtype, t.image_shift}, residual{dtype, t.residual};
  constexpr std::int64_t kElementsPerTask = 64;
  parallel_for(static_cast<std::int64_t>(elements.size()), kElementsPerTask, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> pixel(static_cast<std::size_t>(p.cin)), weights(static_cast<std::size_t>(p.cin));
    for (std::int64_t e = begin; e < end; ++e) {
      const std::int64_t element = elements[static_cast<std::size_t>(e)];
      const std::int64_t channel = element % p.cout;
      const std::int64_t place = element / p.cout;  // [batch, frame, pixel]
      const std::int64_t frame = place / p.hw % p.frames;
      double sum = 0;
      for (std::int64_t tap = 0; tap < 3; ++tap) {
        if (frame + tap < 1 || frame + tap > p.frames) continue;
        load_floats(x.dtype, x.data, (place + (tap - 1) * p.hw) * p.cin, p.cin, pixel.data());
        load_floats(w.dtype, w.data, (channel * 3 + tap) * p.cin, p.cin, weights.data());
        sum += exact::dot(pixel, weights);
      }
      if (bias) sum += bias[channel];
      if (image_shift) sum += image_shift[place / (p.frames * p.hw) * p.cout + channel];
      if (residual) sum += residual[element];
      values[static_cast<std::size_t>(e)] = sum;
    }
  });
}

}  // namespace noisefloor::conv3d_temporal
