// The gradients of norms on the host in float, of kernels/groupnorm_backward and kernels/layernorm_backward.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/core/exact_norm.h"
#include "kernels/core/vector_math.h"

namespace noisefloor {

// What all tasks of a launch share: mean and rstd of each group.
template <class Tensors>
struct HostNorm : exact::NormShape {
  DType dtype, affine;
  const Tensors& t;
  const float *mean, *rstd;
};

// Some pixels of an image, and channels side by side, along which every inner loop runs. A task goes over its pixels
// twice: the sums of dv and dv xh of each channel; dx, for which dv is computed again. Sums over pixels are in double.
template <class Tensors>
class HostNormTask {
 public:
  HostNormTask(const HostNorm<Tensors>& norm, std::int64_t first_pixel, std::int64_t pixels, std::int64_t first,
               std::int64_t count)
      : s_(norm), t_(norm.t), first_pixel_(first_pixel), end_(first_pixel + pixels), first_(first), count_(count) {
    for (auto* row : {&x_, &dv_, &mean_, &rstd_, &beta_, &b_}) row->resize(static_cast<std::size_t>(count));
    for (auto* row : {&gamma_, &scaled_}) row->assign(static_cast<std::size_t>(count), 1.0f);
    for (auto* row : {&sum_, &sum_xh_}) row->resize(static_cast<std::size_t>(count));
    if (t_.gamma != nullptr) {
      load_floats(s_.affine, t_.gamma, first, count, gamma_.data());
      load_floats(s_.affine, t_.beta, first, count, beta_.data());
    }
    if (t_.scale != nullptr) load_floats(s_.dtype, t_.scale, scale_at(), count, scaled_.data());
    for (std::size_t i = 0; t_.scale != nullptr && i < x_.size(); ++i) scaled_[i] += 1;
    if constexpr (requires { t_.shift; })
      if (t_.shift != nullptr) load_floats(s_.dtype, t_.shift, scale_at(), count, b_.data());
    a_ = gamma_;
    for (std::size_t i = 0; i < x_.size(); ++i) {
      a_[i] *= scaled_[i];
      b_[i] += beta_[i] * scaled_[i];
    }
  }

  void sum() {
    for (std::int64_t pixel = first_pixel_; pixel < end_; ++pixel) {
      load_pixel(pixel);
      for (std::size_t i = 0; i < x_.size(); ++i) {
        sum_[i] += dv_[i];
        sum_xh_[i] += dv_[i] * x_[i];
      }
    }
  }
  // `sums`: the image's, [2, channels], times 1 + scale.
  void store_sums(float* sums) const {
    for (std::size_t i = 0; i < x_.size(); ++i) {
      const std::int64_t c = static_cast<std::int64_t>(i), at = scale_at() + c;
      sums[first_ + c] = static_cast<float>(scaled_[i] * sum_[i]);
      sums[s_.channels + first_ + c] = static_cast<float>(scaled_[i] * sum_xh_[i]);
      if (t_.scale == nullptr) continue;
      store_element(s_.dtype, t_.dscale, at, gamma_[i] * sum_xh_[i] + beta_[i] * sum_[i]);
      store_element(s_.dtype, t_.dshift, at, sum_[i]);
    }
  }
  // Where the task has all of its groups.
  void write_dx() {
    for (std::size_t i = 0; i < x_.size(); ++i) {
      sum_[i] *= a_[i];
      sum_xh_[i] *= a_[i];
    }
    mean_dh_ = group_means(sum_);
    mean_dh_xh_ = group_means(sum_xh_);
    for (std::int64_t pixel = first_pixel_; pixel < end_; ++pixel) {
      load_pixel(pixel);
      store_dx(pixel);
    }
  }
  // Where a group is all channels of a pixel.
  void write_dx_of_rows() {
    for (std::int64_t pixel = first_pixel_; pixel < end_; ++pixel) {
      load_pixel(pixel);
      double dh = 0, dh_xh = 0;
      for (std::size_t i = 0; i < x_.size(); ++i) {
        const float value = a_[i] * dv_[i];
        dh += value;
        dh_xh += value * x_[i];
      }
      mean_dh_.assign(x_.size(), static_cast<float>(dh / static_cast<double>(count_)));
      mean_dh_xh_.assign(x_.size(), static_cast<float>(dh_xh / static_cast<double>(count_)));
      store_dx(pixel);
    }
  }

 private:
  std::int64_t scale_at() const { return first_pixel_ / s_.pixels * s_.stride + first_; }
  void load(const void* from, std::int64_t pixel, std::vector<float>& row) const {
    load_floats(s_.dtype, from, pixel * s_.channels + first_, count_, row.data());
  }
  // xh in the place of x, and dv.
  void load_pixel(std::int64_t pixel) {
    load(t_.x, pixel, x_);
    load(t_.dy, pixel, dv_);
    for (std::int64_t c = 0; (pixel == first_pixel_ || s_.group_pixels == 1) && c < count_; c += s_.group_channels) {
      const auto group = s_.group_of(pixel, first_ + c);
      const std::int64_t same = std::min(s_.group_channels, count_ - c);  // a task has whole groups, or part of one
      std::fill_n(mean_.begin() + c, same, s_.mean[group]);
      std::fill_n(rstd_.begin() + c, same, s_.rstd[group]);
    }
    for (std::size_t i = 0; i < x_.size(); ++i) x_[i] = (x_[i] - mean_[i]) * rstd_[i];
    for (std::size_t i = 0; s_.silu && i < x_.size(); ++i) dv_[i] *= vector_silu_slope(x_[i] * a_[i] + b_[i]);
  }
  void store_dx(std::int64_t pixel) {
    for (std::size_t i = 0; i < x_.size(); ++i)
      dv_[i] = rstd_[i] * (a_[i] * dv_[i] - mean_dh_[i] - x_[i] * mean_dh_xh_[i]);
    const auto factor = static_cast<float>(s_.residual_scale);
    if (t_.residual != nullptr) load(t_.residual, pixel, x_);
    for (std::size_t i = 0; t_.residual != nullptr && i < x_.size(); ++i) dv_[i] += factor * x_[i];
    store_floats(s_.dtype, t_.dx, pixel * s_.channels + first_, count_, dv_.data());
  }
  // Of the channels of each group, to each of them.
  std::vector<float> group_means(const std::vector<double>& sums) const {
    std::vector<float> means;
    const auto size = static_cast<double>(s_.group_pixels * s_.group_channels);
    for (auto at = sums.begin(); at != sums.end(); at += s_.group_channels)
      means.insert(means.end(), static_cast<std::size_t>(s_.group_channels),
                   static_cast<float>(std::accumulate(at, at + s_.group_channels, 0.0) / size));
    return means;
  }

  const HostNorm<Tensors>& s_;
  const Tensors& t_;
  std::int64_t first_pixel_, end_, first_, count_;
  // Of each channel; v = xh a + b; scaled: 1 + scale.
  std::vector<float> x_, dv_, mean_, rstd_, gamma_, beta_, scaled_, a_, b_, mean_dh_, mean_dh_xh_;
  std::vector<double> sum_, sum_xh_;
};

// Calls run(task of an image and some channels, the image's sums), on all cores; then dgamma and dbeta, images added in
// their order. `sums`: [images, 2, channels]; tasks have whole groups, of about 64 channels.
template <class Tensors, class Run>
void each_host_norm_task(const HostNorm<Tensors>& norm, std::int64_t width, float* sums, const Run& run) {
  const std::int64_t channels = width * std::max<std::int64_t>(1, 64 / width), all = norm.channels;
  const std::int64_t tasks = (all + channels - 1) / channels;
  parallel_for(norm.images * tasks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t image = i / tasks, first = i % tasks * channels;
      HostNormTask task(norm, image * norm.pixels, norm.pixels, first, std::min(channels, all - first));
      task.sum();
      task.store_sums(sums + image * 2 * all);
      run(task);
    }
  });
  for (std::int64_t c = 0; norm.t.dgamma != nullptr && c < all; ++c) {
    double dbeta = 0, dgamma = 0;
    for (std::int64_t image = 0; image < norm.images; ++image) {
      dbeta += sums[image * 2 * all + c];
      dgamma += sums[(image * 2 + 1) * all + c];
    }
    norm.t.dbeta[c] = static_cast<float>(dbeta);
    norm.t.dgamma[c] = static_cast<float>(dgamma);
  }
}

}  // namespace noisefloor
