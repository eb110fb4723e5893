// The oracle of norms' gradients, of kernels/groupnorm_backward and kernels/layernorm_backward: in double, straight
// from their definitions.
#pragma once

#include <cmath>
#include <string_view>
#include <vector>

#include "kernels/core/exact.h"

namespace noisefloor::exact {

// x is [images, pixels, channels]; a group of group_pixels pixels and group_channels channels is normalised together.
struct NormShape {
  std::int64_t images, pixels, channels, group_pixels, group_channels;
  std::int64_t stride;  // elements from one image's scale to the next one's, and of shift alike
  bool silu;            // behind the norm
  double residual_scale, eps;

  std::size_t group_of(std::int64_t pixel, std::int64_t c) const {
    return static_cast<std::size_t>(pixel / group_pixels * (channels / group_channels) + c / group_channels);
  }
};

// Data is null where the norm has no such tensor; mean and rstd, of each group, where they follow from x and eps.
struct NormGradients : NormShape {
  HostTensor x, dy, gamma, beta, scale, shift, residual;
  const float *mean = nullptr, *rstd = nullptr;

  template <class Tensors>
  NormGradients(const NormShape& its_shape, DType dtype, DType affine, const Tensors& t)
      : NormShape(its_shape),
        x{dtype, t.x},
        dy{dtype, t.dy},
        gamma{affine, t.gamma},
        beta{affine, t.beta},
        scale{dtype, t.scale},
        shift{dtype, nullptr},
        residual{dtype, t.residual} {
    if constexpr (requires { t.shift; }) shift.data = t.shift;
    if constexpr (requires { t.rstd; }) mean = t.mean, rstd = t.rstd;
  }

  void reference(std::string_view output, std::span<const std::int64_t> elements, std::span<double> values) const {
    const bool of_pixel = output == "dx", of_all = output == "dgamma" || output == "dbeta";
    const std::int64_t row = channels * (of_pixel ? pixels : output == "dscale_shift" ? 2 : 1);  // of an image
    // The pixels, of all images, that an element is a sum over.
    const auto first_of = [&](std::int64_t e) { return of_pixel ? e / channels : of_all ? 0 : e / row * pixels; };
    const std::int64_t count = of_pixel ? 1 : of_all ? images * pixels : pixels;
    std::vector<char> wanted(static_cast<std::size_t>(images * pixels / group_pixels * (channels / group_channels)));
    for (const std::int64_t e : elements)
      for (std::int64_t pixel = first_of(e); pixel < first_of(e) + count; pixel += group_pixels)
        wanted[group_of(pixel, e % channels)] = 1;
    std::vector<Group> groups(wanted.size());
    parallel_for(std::ssize(groups), 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto g = static_cast<std::size_t>(begin); g < static_cast<std::size_t>(end); ++g)
        if (wanted[g] != 0) groups[g] = group(g, of_pixel);
    });
    each_element(elements, values, [&] {
      return [&](std::int64_t e) {
        const std::int64_t c = e % channels, first = first_of(e);
        if (of_pixel) return dx(groups[group_of(first, c)], first, c);
        const bool plain = output == "dbeta" || output == "dshift" || e % row >= channels;
        double sum = 0;
        for (std::int64_t pixel = first; pixel < first + count; ++pixel) {
          const Group& own = groups[group_of(pixel, c)];
          const double factor = plain ? 1 : of_all ? xh(own, pixel, c) : norm(own, pixel, c);
          sum += dv(own, pixel, c) * factor * (of_all ? scaled(pixel, c) : 1);
        }
        return sum;
      };
    });
  }

 private:
  struct Group {
    double mean, rstd, mean_dh = 0, mean_dh_xh = 0;
  };

  double scaled(std::int64_t pixel, std::int64_t c) const {
    return scale ? 1 + scale[pixel / pixels * stride + c] : 1.0;
  }
  double xh(const Group& of, std::int64_t pixel, std::int64_t c) const {
    return (x[pixel * channels + c] - of.mean) * of.rstd;
  }
  double norm(const Group& of, std::int64_t pixel, std::int64_t c) const {
    return gamma ? xh(of, pixel, c) * gamma[c] + beta[c] : xh(of, pixel, c);
  }
  double dv(const Group& of, std::int64_t pixel, std::int64_t c) const {
    const double gradient = dy[pixel * channels + c];
    if (!silu) return gradient;
    const double added = shift ? shift[pixel / pixels * stride + c] : 0.0;
    return gradient * silu_slope(norm(of, pixel, c) * scaled(pixel, c) + added);
  }
  double dh(const Group& of, std::int64_t pixel, std::int64_t c) const {
    return dv(of, pixel, c) * scaled(pixel, c) * (gamma ? gamma[c] : 1.0);
  }
  double dx(const Group& of, std::int64_t pixel, std::int64_t c) const {
    const double value = of.rstd * (dh(of, pixel, c) - of.mean_dh - xh(of, pixel, c) * of.mean_dh_xh);
    return residual ? value + residual_scale * residual[pixel * channels + c] : value;
  }
  Group group(std::size_t number, bool means) const {
    const auto size = static_cast<double>(group_pixels * group_channels);
    const auto across = static_cast<std::size_t>(channels / group_channels);
    const auto first = static_cast<std::int64_t>(number / across) * group_pixels;
    const auto first_channel = static_cast<std::int64_t>(number % across) * group_channels;
    const auto mean_of = [&](const auto& value_of) {
      double sum = 0;
      for (std::int64_t pixel = first; pixel < first + group_pixels; ++pixel)
        for (std::int64_t c = first_channel; c < first_channel + group_channels; ++c) sum += value_of(pixel, c);
      return sum / size;
    };
    Group of{mean ? mean[number] : 0.0, rstd ? rstd[number] : 1.0};
    if (!mean) {
      const auto deviation = [&](std::int64_t pixel, std::int64_t c) { return xh(of, pixel, c); };
      of.mean = mean_of(deviation);
      of.rstd = 1 / std::sqrt(mean_of([&](auto... at) { return deviation(at...) * deviation(at...); }) + eps);
    }
    if (!means) return of;
    of.mean_dh = mean_of([&](auto... at) { return dh(of, at...); });
    of.mean_dh_xh = mean_of([&](auto... at) { return dh(of, at...) * xh(of, at...); });
    return of;
  }
};

}  // namespace noisefloor::exact
