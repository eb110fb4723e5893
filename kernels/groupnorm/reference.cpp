// The oracle: two passes in double over each group that a wanted element lies in.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/core/parallel.h"
#include "kernels/core/tensor.h"
#include "kernels/groupnorm/host_rows.h"

namespace noisefloor::groupnorm {
namespace {

struct Stats {
  double mean = 0;
  double rstd = 0;
};

Stats group_stats(const Problem& p, DType dtype, const Tensors& t, std::int64_t image, std::int64_t group) {
  const std::int64_t width = p.channels_per_group();
  std::vector<float> row(static_cast<std::size_t>(width));
  double sum = 0;
  for (std::int64_t s = 0; s < p.hw; ++s) {
    load_channels(p, dtype, t, image * p.hw + s, group * width, width, row.data());
    for (const float value : row) sum += value;
  }
  const double mean = sum / static_cast<double>(p.group_size());
  double squares = 0;
  for (std::int64_t s = 0; s < p.hw; ++s) {
    load_channels(p, dtype, t, image * p.hw + s, group * width, width, row.data());
    for (const float value : row) squares += (value - mean) * (value - mean);
  }
  return {mean, 1 / std::sqrt(squares / static_cast<double>(p.group_size()) + p.eps)};
}

// From given moments (Chan, Golub and LeVeque 1979): those of the union are the sums of the parts' own and of what
// their means differ by.
Stats given_stats(const Problem& p, const float* means, const float* m2s, std::int64_t image, std::int64_t group) {
  const std::int64_t width = p.channels_per_group();
  const auto each = [&](const auto& body) {
    for (std::int64_t slab = 0; slab < p.given_slabs(); ++slab)
      for (std::int64_t c = 0; c < width; ++c)
        body((image * p.given_slabs() + slab) * p.channels + group * width + c,
             static_cast<double>(p.given_rows(slab)));
  };
  double sum = 0, squares = 0;
  each([&](std::int64_t at, double rows) { sum += rows * static_cast<double>(means[at]); });
  const double mean = sum / static_cast<double>(p.group_size());
  each([&](std::int64_t at, double rows) {
    const double deviation = static_cast<double>(means[at]) - mean;
    squares += static_cast<double>(m2s[at]) + rows * deviation * deviation;
  });
  return {mean, 1 / std::sqrt(squares / static_cast<double>(p.group_size()) + p.eps)};
}

}  // namespace

void reference(const Problem& p, DType dtype, const Tensors& t, std::string_view output,
               std::span<const std::int64_t> elements, std::span<double> values) {
  const HostTensor x{dtype, t.x}, skip{dtype, t.skip}, gamma{dtype, t.gamma}, beta{dtype, t.beta},
      scale{dtype, t.scale}, shift{dtype, t.shift};

  // Image, and image and group (as image * groups + group), of an element of the wanted output.
  const bool by_group = output == "mean" || output == "rstd";
  const auto image_of = [&](std::int64_t element) {
    return element / ((output == "coefficients" ? 2 : p.y_pixels()) * p.channels);
  };
  const auto group_of = [&](std::int64_t element) {
    return by_group ? element : image_of(element) * p.groups + element % p.channels / p.channels_per_group();
  };
  std::vector<std::int64_t> wanted;
  for (const std::int64_t element : elements) wanted.push_back(group_of(element));
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  std::vector<Stats> stats(wanted.size());
  parallel_for(static_cast<std::int64_t>(wanted.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
      stats[i] = p.given() ? given_stats(p, t.slab_mean, t.slab_m2, wanted[i] / p.groups, wanted[i] % p.groups)
                           : group_stats(p, dtype, t, wanted[i] / p.groups, wanted[i] % p.groups);
  });

  for (std::size_t i = 0; i < elements.size(); ++i) {
    const std::int64_t element = elements[i];
    const auto place = std::lower_bound(wanted.begin(), wanted.end(), group_of(element)) - wanted.begin();
    const Stats& group = stats[static_cast<std::size_t>(place)];
    if (output == "mean") {
      values[i] = group.mean;
    } else if (output == "rstd") {
      values[i] = group.rstd;
    } else {
      const std::int64_t channel = element % p.channels;
      const auto affine = [&](double value) {
        value = (value - group.mean) * group.rstd * gamma[channel] + beta[channel];
        if (!p.scale_shift()) return value;
        const std::int64_t at = image_of(element) * p.scale_shift_stride() + channel;
        return value * (1 + scale[at]) + (p.packed ? scale[at + p.channels] : shift[at]);
      };
      if (output == "coefficients") {
        values[i] = element / p.channels % 2 == 0 ? affine(1) - affine(0) : affine(0);
      } else {
        const auto at = [&](std::int64_t row) {
          const std::int64_t in_skip = channel - p.x_channels();
          return in_skip < 0 ? x[row * p.x_channels() + channel] : skip[row * p.skip_channels + in_skip];
        };
        const auto normed = [&](std::int64_t row) {
          const double value = affine(at(row));
          return p.fusion == Fusion::none ? value : value / (1 + std::exp(-value));
        };
        const std::int64_t row = element / p.channels;
        if (!p.down()) {
          values[i] = normed(row);
        } else {
          const std::int64_t first = p.first_of_four(row);
          values[i] = 0;
          for (const std::int64_t corner : {first, first + 1, first + p.down_w, first + p.down_w + 1})
            values[i] += (output == "x_down" ? at(corner) : normed(corner)) / 4;
        }
      }
    }
  }
}

}  // namespace noisefloor::groupnorm
