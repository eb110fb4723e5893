// The op on the host in float. A task makes some groups of an image: channels side by side, along which every inner
// loop runs. It goes over their pixels twice: the sums of dv and dv xh of each channel; dx, for which dv is computed
// again. Sums over pixels are in double. Then dgamma and dbeta, images added in their order.
// Workspace, fp32: sums of dv and dv xh times 1 + scale, [n, 2, channels].
#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/core/parallel.h"
#include "kernels/core/vector_math.h"
#include "kernels/groupnorm_backward/groupnorm_backward.h"

namespace noisefloor::groupnorm_backward {
namespace {

constexpr std::int64_t kTaskChannels = 64;  // about

class Task {
 public:
  Task(const Problem& p, DType dtype, const Tensors& t, std::int64_t image, std::int64_t first, std::int64_t count)
      : p_(p), dtype_(dtype), t_(t), image_(image), first_(first), count_(count) {
    for (std::vector<float>* row : {&x_, &dv_, &scaled_, &a_, &b_}) row->resize(static_cast<std::size_t>(count));
    for (std::vector<double>* row : {&sum_, &sum_xh_}) row->resize(static_cast<std::size_t>(count));
  }

  // `sums`: the image's, [2, channels].
  void run(float* sums) {
    load_parameters();
    each_pixel([&](std::int64_t pixel) {
      load_pixel(pixel);
      for (std::size_t i = 0; i < x_.size(); ++i) {
        sum_[i] += dv_[i];
        sum_xh_[i] += dv_[i] * x_[i];
      }
    });
    store_sums(sums);
    write();
  }

 private:
  template <class Body>
  void each_pixel(const Body& body) const {
    for (std::int64_t pixel = image_ * p_.hw; pixel < (image_ + 1) * p_.hw; ++pixel) body(pixel);
  }
  void load(const void* from, std::int64_t pixel, std::vector<float>& row) const {
    load_floats(dtype_, from, pixel * p_.channels + first_, count_, row.data());
  }
  // Of the channels of each group, to each of them.
  std::vector<float> group_means(const std::vector<double>& sums) const {
    std::vector<float> means;
    const std::int64_t width = p_.channels_per_group();
    for (auto at = sums.begin(); at != sums.end(); at += width)
      means.insert(means.end(), static_cast<std::size_t>(width),
                   static_cast<float>(std::accumulate(at, at + width, 0.0) / static_cast<double>(p_.group_size())));
    return means;
  }

  // v = xh a + b; scaled: 1 + scale.
  void load_parameters() {
    const std::int64_t width = p_.channels_per_group();
    for (std::int64_t c = first_; c < first_ + count_; ++c) {
      mean_.push_back(t_.mean[image_ * p_.groups + c / width]);
      rstd_.push_back(t_.rstd[image_ * p_.groups + c / width]);
    }
    load_floats(p_.affine_dtype(dtype_), t_.gamma, first_, count_, a_.data());
    load_floats(p_.affine_dtype(dtype_), t_.beta, first_, count_, b_.data());
    std::ranges::fill(scaled_, 1.0f);
    if (!p_.scale_shift()) return;
    const std::int64_t at = image_ * p_.scale_shift_stride() + first_;
    load_floats(dtype_, t_.scale, at, count_, scaled_.data());
    load_floats(dtype_, t_.shift, at, count_, x_.data());
    for (std::size_t i = 0; i < x_.size(); ++i) {
      scaled_[i] += 1;
      a_[i] *= scaled_[i];
      b_[i] = b_[i] * scaled_[i] + x_[i];
    }
  }

  // xh in the place of x, and dv.
  void load_pixel(std::int64_t pixel) {
    load(t_.x, pixel, x_);
    load(t_.dy, pixel, dv_);
    for (std::size_t i = 0; i < x_.size(); ++i) x_[i] = (x_[i] - mean_[i]) * rstd_[i];
    for (std::size_t i = 0; p_.fusion != Fusion::none && i < x_.size(); ++i) {
      const float v = x_[i] * a_[i] + b_[i];
      const float s = 1 / (1 + vector_exp(-v));
      dv_[i] *= s * (1 + v * (1 - s));
    }
  }

  void store_sums(float* sums) const {
    for (std::int64_t c = first_; c < first_ + count_; ++c) {
      const auto i = static_cast<std::size_t>(c - first_);
      sums[c] = static_cast<float>(static_cast<double>(scaled_[i]) * sum_[i]);
      sums[p_.channels + c] = static_cast<float>(static_cast<double>(scaled_[i]) * sum_xh_[i]);
      if (!p_.scale_shift()) continue;
      const std::int64_t at = image_ * p_.scale_shift_stride() + c;
      const DType affine = p_.affine_dtype(dtype_);
      const double gamma = load_element(affine, t_.gamma, c), beta = load_element(affine, t_.beta, c);
      store_element(dtype_, t_.dscale, at, gamma * sum_xh_[i] + beta * sum_[i]);
      store_element(dtype_, t_.dshift, at, sum_[i]);
    }
  }

  void write() {
    for (std::size_t i = 0; i < a_.size(); ++i) {
      sum_[i] *= static_cast<double>(a_[i]);
      sum_xh_[i] *= static_cast<double>(a_[i]);
    }
    const std::vector<float> mean_dh = group_means(sum_), mean_dh_xh = group_means(sum_xh_);
    const auto factor = static_cast<float>(p_.residual_scale);
    each_pixel([&](std::int64_t pixel) {
      load_pixel(pixel);
      for (std::size_t i = 0; i < x_.size(); ++i)
        dv_[i] = rstd_[i] * (a_[i] * dv_[i] - mean_dh[i] - x_[i] * mean_dh_xh[i]);
      if (p_.residual) load(t_.residual, pixel, x_);
      for (std::size_t i = 0; p_.residual && i < x_.size(); ++i) dv_[i] += factor * x_[i];
      store_floats(dtype_, t_.dx, pixel * p_.channels + first_, count_, dv_.data());
    });
  }

  const Problem& p_;
  DType dtype_;
  const Tensors& t_;
  std::int64_t image_, first_, count_;                        // channels
  std::vector<float> x_, dv_, mean_, rstd_, scaled_, a_, b_;  // of each
  std::vector<double> sum_, sum_xh_;
};

}  // namespace

std::size_t host_workspace_bytes(const Problem& p, DType, const DeviceInfo&) {
  return static_cast<std::size_t>(p.n * 2 * p.channels) * sizeof(float);
}

Status launch_host(const Problem& p, DType dtype, const Tensors& tensors, const Scratch& scratch,
                   const LaunchContext&) {
  auto* const sums = static_cast<float*>(scratch.workspace);
  if (sums == nullptr) return failure(StatusCode::invalid_argument, "groupnorm_backward: no workspace");
  const Tensors t = unpacked(p, dtype, tensors);
  const std::int64_t width = p.channels_per_group();
  const std::int64_t channels = width * std::max<std::int64_t>(1, kTaskChannels / width);
  const std::int64_t tasks = (p.channels + channels - 1) / channels;
  parallel_for(p.n * tasks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t image = i / tasks, first = i % tasks * channels;
      Task(p, dtype, t, image, first, std::min(channels, p.channels - first)).run(sums + image * 2 * p.channels);
    }
  });
  for (std::int64_t c = 0; c < p.channels; ++c) {
    double dbeta = 0, dgamma = 0;
    for (std::int64_t image = 0; image < p.n; ++image) {
      dbeta += sums[image * 2 * p.channels + c];
      dgamma += sums[(image * 2 + 1) * p.channels + c];
    }
    t.dbeta[c] = static_cast<float>(dbeta);
    t.dgamma[c] = static_cast<float>(dgamma);
  }
  return success();
}

}  // namespace noisefloor::groupnorm_backward
