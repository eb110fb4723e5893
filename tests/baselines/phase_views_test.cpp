// The four phases of an upsampled convolution as one 2x2 convolution: by numbers that are exact.
#include "baselines/cudnn_convolution_stages.h"

#include <gtest/gtest.h>

#include "kernels/convolution/convolution.h"

namespace noisefloor::cudnn {
namespace {

using Numbers = std::vector<double>;

Numbers numbers(std::int64_t count, int seed) {
  Numbers made;
  for (std::int64_t i = 0; i < count; ++i) made.push_back(static_cast<double>((i * 7919 + seed) % 13 - 6));
  return made;
}

struct Sizes {
  std::int64_t n, h, w, cin, cout;
};

// Channels-last; weights [cout, kernel, kernel, cin]; pixel (y, x) begins at (y - pad, x - pad).
Numbers convolve(const Sizes& s, const Numbers& image, const Numbers& weights, std::int64_t kernel, std::int64_t out_h,
                 std::int64_t out_w) {
  constexpr std::int64_t kPad = 1;
  Numbers out(static_cast<std::size_t>(s.n * out_h * out_w * s.cout));
  std::size_t at = 0;
  for (std::int64_t i = 0; i < s.n; ++i)
    for (std::int64_t y = 0; y < out_h; ++y)
      for (std::int64_t x = 0; x < out_w; ++x)
        for (std::int64_t c = 0; c < s.cout; ++c, ++at)
          for (std::int64_t ky = 0; ky < kernel; ++ky)
            for (std::int64_t kx = 0; kx < kernel; ++kx) {
              const std::int64_t v = y + ky - kPad, u = x + kx - kPad;
              if (v < 0 || v >= s.h || u < 0 || u >= s.w) continue;
              for (std::int64_t k = 0; k < s.cin; ++k)
                out[at] += image[static_cast<std::size_t>(((i * s.h + v) * s.w + u) * s.cin + k)] *
                           weights[static_cast<std::size_t>(((c * kernel + ky) * kernel + kx) * s.cin + k)];
            }
  return out;
}

// As sum_weights.cu lays them out: [4][cout][2][2][cin].
Numbers summed(const Sizes& s, const Numbers& weights) {
  Numbers sums;
  for (int phase = 0; phase < 4; ++phase)
    for (std::int64_t c = 0; c < s.cout; ++c)
      for (int tap = 0; tap < 4; ++tap)
        for (std::int64_t k = 0; k < s.cin; ++k) {
          const auto ys = convolution::summed_taps(phase / 2, tap / 2),
                     xs = convolution::summed_taps(phase % 2, tap % 2);
          double sum = 0;
          for (int ky = ys.first; ky <= ys.last; ++ky)
            for (int kx = xs.first; kx <= xs.last; ++kx)
              sum += weights[static_cast<std::size_t>(((c * 3 + ky) * 3 + kx) * s.cin + k)];
          sums.push_back(sum);
        }
  return sums;
}

std::size_t place(const PhaseView& view, std::int64_t i, std::int64_t c, std::int64_t y, std::int64_t x) {
  return static_cast<std::size_t>(view.offset + i * view.strides[0] + c * view.strides[1] + y * view.strides[2] +
                                  x * view.strides[3]);
}

TEST(PhaseViews, OfOneConvolutionMakeTheUpsampledOne) {
  for (const Sizes& s : {Sizes{1, 1, 1, 1, 1}, {2, 3, 5, 2, 3}, {1, 4, 1, 3, 2}, {3, 2, 2, 1, 8}}) {
    const Numbers image = numbers(s.n * s.h * s.w * s.cin, 1), weights = numbers(s.cout * 9 * s.cin, 5);
    Numbers large;
    for (std::int64_t i = 0; i < s.n; ++i)
      for (std::int64_t y = 0; y < 2 * s.h; ++y)
        for (std::int64_t x = 0; x < 2 * s.w; ++x)
          for (std::int64_t k = 0; k < s.cin; ++k)
            large.push_back(image[static_cast<std::size_t>(((i * s.h + y / 2) * s.w + x / 2) * s.cin + k)]);
    const Numbers expected = convolve({s.n, 2 * s.h, 2 * s.w, s.cin, s.cout}, large, weights, 3, 2 * s.h, 2 * s.w);

    const Sizes wide{s.n, s.h, s.w, s.cin, 4 * s.cout};
    const Numbers sums = convolve(wide, image, summed(s, weights), 2, s.h + 1, s.w + 1);
    Numbers found(expected.size(), -1e9);
    for (int phase = 0; phase < 4; ++phase) {
      const PhaseView from = phase_of_sums(s.h, s.w, s.cout, phase), to = phase_of_output(s.h, s.w, s.cout, phase);
      for (std::int64_t i = 0; i < s.n; ++i)
        for (std::int64_t c = 0; c < s.cout; ++c)
          for (std::int64_t y = 0; y < s.h; ++y)
            for (std::int64_t x = 0; x < s.w; ++x) found.at(place(to, i, c, y, x)) = sums.at(place(from, i, c, y, x));
    }
    EXPECT_EQ(found, expected);
  }
}

// What a graph of cuDNN is told of its tensors.
TEST(PhaseViews, OfChannelsInEightsAreAligned) {
  for (int phase = 0; phase < 4; ++phase) {
    EXPECT_EQ(phase_of_sums(3, 5, 8, phase).offset * 4 % 16, 0);
    EXPECT_EQ(phase_of_output(3, 5, 8, phase).offset * 2 % 16, 0);
  }
}

}  // namespace
}  // namespace noisefloor::cudnn
