// layernorm_backward on the host, in float on all cores. Rows in parallel: mean, variance, the means of dh and dh xh,
// and dx. Then blocks of channels in parallel: the sums of dy and dy xh over each image's rows, and over images, in
// double. Workspace, fp32: mean and rstd [rows], where a gradient but dx is asked for.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/core/parallel.h"
#include "kernels/core/tensor.h"
#include "kernels/layernorm_backward/layernorm_backward.h"

namespace noisefloor::layernorm_backward {
namespace {

constexpr std::int64_t kBlock = 64;  // channels

struct Statistics {
  float mean, rstd;
};

// dx of a row.
Statistics backward_row(const Problem& p, DType dtype, const Tensors& t, std::int64_t row) {
  const std::int64_t count = p.channels, image = row / p.rows_per_image();
  const auto load = [&](const void* from, std::int64_t first) {
    std::vector<float> values(static_cast<std::size_t>(count));
    load_floats(dtype, from, first, count, values.data());
    return values;
  };
  std::vector<float> xh = load(t.x, row * count), dh = load(t.dy, row * count);
  const auto size = dh.size();
  if (p.affine)
    for (std::size_t i = 0; const float gamma : load(t.gamma, 0)) dh[i++] *= gamma;
  if (p.scale_shift())
    for (std::size_t i = 0; const float scale : load(t.scale, image * count)) dh[i++] *= 1 + scale;

  double sum = 0, squares = 0, sum_dh = 0, sum_dh_xh = 0;
  for (std::size_t i = 0; i < size; ++i) {
    sum += xh[i];
    sum_dh += dh[i];
  }
  const auto length = static_cast<double>(count);
  const auto mean = static_cast<float>(sum / length), mean_dh = static_cast<float>(sum_dh / length);
  for (std::size_t i = 0; i < size; ++i) {
    xh[i] -= mean;
    squares += xh[i] * xh[i];
    sum_dh_xh += dh[i] * xh[i];
  }
  const double exact_rstd = 1 / std::sqrt(squares / length + p.eps);
  const auto rstd = static_cast<float>(exact_rstd);
  const auto mean_dh_xh = static_cast<float>(sum_dh_xh * exact_rstd / length);
  for (std::size_t i = 0; i < size; ++i) dh[i] = rstd * (dh[i] - mean_dh - xh[i] * rstd * mean_dh_xh);
  const auto factor = static_cast<float>(p.residual_scale);
  if (p.residual)
    for (std::size_t i = 0; const float residual : load(t.residual, row * count)) dh[i++] += factor * residual;
  store_floats(dtype, t.dx, row * count, count, dh.data());
  return {mean, rstd};
}

// The sums of `count` channels from `first` on.
void sum_rows(const Problem& p, DType dtype, const Tensors& t, const Statistics* statistics, std::int64_t first,
              std::int64_t count) {
  float x[kBlock], dy[kBlock];
  double dbeta[kBlock] = {}, dgamma[kBlock] = {};
  for (std::int64_t image = 0; image < p.images; ++image) {
    double plain[kBlock] = {}, with_xh[kBlock] = {};
    for (std::int64_t row = image * p.rows_per_image(); row < (image + 1) * p.rows_per_image(); ++row) {
      load_floats(dtype, t.x, row * p.channels + first, count, x);
      load_floats(dtype, t.dy, row * p.channels + first, count, dy);
      const auto [mean, rstd] = statistics[row];
      for (std::int64_t i = 0; i < count; ++i) {
        plain[i] += dy[i];
        with_xh[i] += dy[i] * (x[i] - mean) * rstd;
      }
    }
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t c = first + i, at = image * p.channels + c;
      const double scaled = p.scale_shift() ? 1 + load_element(dtype, t.scale, at) : 1.0;
      dbeta[i] += scaled * plain[i];
      dgamma[i] += scaled * with_xh[i];
      if (!p.scale_shift()) continue;
      const double gamma = p.affine ? load_element(dtype, t.gamma, c) : 1.0;
      const double beta = p.affine ? load_element(dtype, t.beta, c) : 0.0;
      store_element(dtype, t.dscale, at, gamma * with_xh[i] + beta * plain[i]);
      store_element(dtype, t.dshift, at, plain[i]);
    }
  }
  for (std::int64_t i = 0; p.affine && i < count; ++i) {
    t.dbeta[first + i] = static_cast<float>(dbeta[i]);
    t.dgamma[first + i] = static_cast<float>(dgamma[i]);
  }
}

}  // namespace

std::size_t host_workspace_bytes(const Problem& p, DType, const DeviceInfo&) {
  return p.sums() ? static_cast<std::size_t>(p.rows) * sizeof(Statistics) : 0;
}

Status launch_host(const Problem& p, DType dtype, const Tensors& t, const Scratch& scratch, const LaunchContext&) {
  auto* const statistics = p.sums() ? static_cast<Statistics*>(scratch.workspace) : nullptr;
  if (p.sums() && statistics == nullptr)
    return failure(StatusCode::invalid_argument, "layernorm_backward: no workspace");
  parallel_for(p.rows, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const Statistics found = backward_row(p, dtype, t, row);
      if (statistics != nullptr) statistics[row] = found;
    }
  });
  if (statistics != nullptr)
    parallel_for(p.channels, kBlock,
                 [&](std::int64_t begin, std::int64_t end) { sum_rows(p, dtype, t, statistics, begin, end - begin); });
  return success();
}

}  // namespace noisefloor::layernorm_backward
