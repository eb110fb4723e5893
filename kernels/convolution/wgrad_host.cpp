// wgrad on the host, plain: an output channel after the other.
#include <vector>

#include "kernels/convolution/gradient.h"
#include "kernels/core/parallel.h"

namespace noisefloor::convolution {

Status launch_wgrad_host(const Convolution& c, DType dtype, const Wgrad& t, float scale, void*, const LaunchContext&) {
  const std::int64_t row = c.weight_row();
  parallel_for(c.cout, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> sums(static_cast<std::size_t>(row)), x(static_cast<std::size_t>(c.cin));
    for (std::int64_t co = begin; co < end; ++co) {
      std::fill(sums.begin(), sums.end(), 0.0f);
      float bias = 0;
      for (std::int64_t image = 0; image < c.images; ++image) {
        float shift = 0;
        for (std::int64_t i = image * c.phase_pixels(); i < (image + 1) * c.phase_pixels(); ++i) {
          const Pixel at = row_pixel(c, i);
          float dy;
          load_floats(dtype, t.dy, i * c.cout + co, 1, &dy);
          shift += dy;
          for (int tap = 0; tap < c.y.taps * c.x.taps; ++tap) {
            const int iy = input_coordinate(c.y, at.y, 0, tap / c.x.taps);
            const int ix = input_coordinate(c.x, at.x, 0, tap % c.x.taps);
            if (iy < 0 || ix < 0) continue;
            load_floats(dtype, t.x, ((image * c.y.in + iy) * c.x.in + ix) * c.cin, c.cin, x.data());
            for (int ci = 0; ci < c.cin; ++ci) sums[tap * c.cin + ci] += dy * x[ci];
          }
        }
        bias += shift;
        if (t.dshift != nullptr) store_element(dtype, t.dshift, image * c.cout + co, scale * shift);
      }
      if (t.dbias != nullptr) t.dbias[co] = scale * bias;
      for (std::int64_t i = 0; i < row; ++i) t.dw[co * row + i] = scale * sums[i];
    }
  });
  return success();
}

}  // namespace noisefloor::convolution
