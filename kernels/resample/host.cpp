// resample on the host: rows of pixels on all cores. What only moves is copied by memcpy, a pixel or a row at a time;
// means and products are taken in float, in chunks of channels that vectorise.
#include <cstring>

#include "kernels/core/host_chunks.h"
#include "kernels/resample/resample.h"

namespace noisefloor::resample {
namespace {

void nearest_up2(const Problem& p, std::size_t pixel, const char* x, char* y) {
  const auto width = static_cast<std::size_t>(p.w);
  parallel_for(p.n * p.h, 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto row = static_cast<std::size_t>(begin); row < static_cast<std::size_t>(end); ++row) {
      char* const out = y + 4 * row * width * pixel;
      for (std::size_t column = 0; column < width; ++column)
        for (std::size_t copy = 0; copy < 2; ++copy)
          std::memcpy(out + (2 * column + copy) * pixel, x + (row * width + column) * pixel, pixel);
      std::memcpy(out + 2 * width * pixel, out, 2 * width * pixel);
    }
  });
}

void concat(const Problem& p, std::size_t size, const Tensors& t) {
  const std::size_t first = static_cast<std::size_t>(p.channels) * size;
  const std::size_t second = static_cast<std::size_t>(p.skip_channels) * size;
  parallel_for(p.n * p.h * p.w, 64, [&](std::int64_t begin, std::int64_t end) {
    for (auto pixel = static_cast<std::size_t>(begin); pixel < static_cast<std::size_t>(end); ++pixel) {
      char* const out = static_cast<char*>(t.y) + pixel * (first + second);
      std::memcpy(out, static_cast<const char*>(t.x) + pixel * first, first);
      std::memcpy(out + first, static_cast<const char*>(t.skip) + pixel * second, second);
    }
  });
}

void split(const Problem& p, std::size_t size, const Tensors& t) {
  const std::size_t first = static_cast<std::size_t>(p.channels) * size;
  const std::size_t second = static_cast<std::size_t>(p.skip_channels) * size;
  parallel_for(p.n * p.h * p.w, 64, [&](std::int64_t begin, std::int64_t end) {
    for (auto pixel = static_cast<std::size_t>(begin); pixel < static_cast<std::size_t>(end); ++pixel) {
      const char* const both = static_cast<const char*>(t.x) + pixel * (first + second);
      std::memcpy(static_cast<char*>(t.y) + pixel * first, both, first);
      std::memcpy(static_cast<char*>(t.skip_out) + pixel * second, both + first, second);
    }
  });
}

void scaled_up2(const Problem& p, DType dtype, const Tensors& t) {
  const auto scale = static_cast<float>(p.scale);
  for_host_chunks<1>(p.n * p.h * p.w, p.channels,
                     [&](std::int64_t pixel, std::int64_t begin, std::int64_t count, auto& buffers) {
                       float* const x = buffers.at[0];
                       load_floats(dtype, t.x, pixel * p.channels + begin, count, x);
                       for (std::int64_t i = 0; i < count; ++i) x[i] *= scale;
                       const std::int64_t first = pixel / p.w * 4 * p.w + 2 * (pixel % p.w);  // in pixels of y
                       for (const std::int64_t at : {first, first + 1, first + 2 * p.w, first + 2 * p.w + 1})
                         store_floats(dtype, t.y, at * p.channels + begin, count, x);
                     });
}

void average_down2(const Problem& p, DType dtype, const Tensors& t) {
  const float factor = 0.25f * static_cast<float>(p.scale);
  for_host_chunks<2>(p.n * p.out_h() * p.out_w(), p.channels,
                     [&](std::int64_t pixel, std::int64_t begin, std::int64_t count, auto& buffers) {
                       auto& [sum, other] = buffers.at;
                       const std::int64_t row = 2 * (pixel / p.out_w()), column = 2 * (pixel % p.out_w());
                       const auto place = [&](std::int64_t r, std::int64_t c) {
                         return ((row + r) * p.w + column + c) * p.channels + begin;
                       };
                       load_floats(dtype, t.x, place(0, 0), count, sum);
                       for (int corner = 1; corner < 4; ++corner) {
                         load_floats(dtype, t.x, place(corner / 2, corner % 2), count, other);
                         for (std::int64_t i = 0; i < count; ++i) sum[i] += other[i];
                       }
                       for (std::int64_t i = 0; i < count; ++i) sum[i] *= factor;
                       store_floats(dtype, t.y, pixel * p.channels + begin, count, sum);
                     });
}

}  // namespace

Status launch_host(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext&) {
  switch (p.op) {
    case Operation::nearest_up2:
      if (p.scale != 1) {
        scaled_up2(p, dtype, t);
        break;
      }
      nearest_up2(p, static_cast<std::size_t>(p.channels) * size_of(dtype), static_cast<const char*>(t.x),
                  static_cast<char*>(t.y));
      break;
    case Operation::average_down2:
      average_down2(p, dtype, t);
      break;
    case Operation::concat:
      concat(p, size_of(dtype), t);
      break;
    case Operation::split:
      split(p, size_of(dtype), t);
      break;
  }
  return success();
}

}  // namespace noisefloor::resample
