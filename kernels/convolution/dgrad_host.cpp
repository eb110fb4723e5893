// dgrad on the host, plain: a pixel of dx after the other, channels vectorised by the compiler.
#include <vector>

#include "kernels/convolution/gradient.h"
#include "kernels/core/parallel.h"

namespace noisefloor::convolution {
namespace {

// The output coordinate that reads u's coordinate `at` through tap `tap`, or -1.
int output_coordinate(const Axis& forward, int at, int tap) {
  const int origin = at - forward.origin - tap;
  return origin < 0 || origin % forward.stride != 0 || origin / forward.stride >= forward.out ? -1
                                                                                              : origin / forward.stride;
}

}  // namespace

Status launch_dgrad_host(const Convolution& c, DType dtype, const Dgrad& t, const DgradFactors& factors, void*,
                         const LaunchContext&) {
  const std::int64_t taps = c.y.taps * c.x.taps;
  std::vector<float> w(static_cast<std::size_t>(c.cout * taps * c.cin));
  load_floats(dtype, t.w, 0, std::ssize(w), w.data());
  parallel_for(std::int64_t{c.images} * c.y.in * c.x.in, 16, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> sums(static_cast<std::size_t>(c.cin)), residual(sums), dy(static_cast<std::size_t>(c.cout));
    for (std::int64_t pixel = begin; pixel < end; ++pixel) {
      const int x = static_cast<int>(pixel % c.x.in), y = static_cast<int>(pixel / c.x.in % c.y.in);
      const std::int64_t image = pixel / c.x.in / c.y.in;
      std::fill(sums.begin(), sums.end(), 0.0f);
      for (int uy = y * c.y.repeat; uy < (y + 1) * c.y.repeat; ++uy)
        for (int ux = x * c.x.repeat; ux < (x + 1) * c.x.repeat; ++ux)
          for (int tap = 0; tap < taps; ++tap) {
            const int oy = output_coordinate(c.y, uy, tap / c.x.taps), ox = output_coordinate(c.x, ux, tap % c.x.taps);
            if (oy < 0 || ox < 0) continue;
            load_floats(dtype, t.dy, ((image * c.y.out + oy) * c.x.out + ox) * c.cout, c.cout, dy.data());
            for (int co = 0; co < c.cout; ++co) {
              const float* row = w.data() + (co * taps + tap) * c.cin;
              for (int ci = 0; ci < c.cin; ++ci) sums[ci] += dy[co] * row[ci];
            }
          }
      for (float& sum : sums) sum *= factors.scale;
      if (t.residual != nullptr) {
        load_floats(dtype, t.residual, pixel * c.cin, c.cin, residual.data());
        for (int ci = 0; ci < c.cin; ++ci) sums[ci] += factors.residual_scale * residual[ci];
      }
      store_floats(dtype, t.dx, pixel * c.cin, c.cin, sums.data());
    }
  });
  return success();
}

}  // namespace noisefloor::convolution
