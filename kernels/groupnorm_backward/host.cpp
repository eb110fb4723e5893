// The op on the host in float: channels are contiguous, so every inner loop runs along them and vectorises.
//
// 1. kernels/groupnorm's statistics: mean and rstd of each group.
// 2. Slabs of rows in parallel: sums of dv and dv xh of each channel.
// 3. Images in parallel: slabs added in fixed order, in double; dscale and dshift, and what dx needs of each channel.
// 4. Slabs in parallel: dx, for which dv is computed again. Then dgamma and dbeta, images added in fixed order.
// Workspace, fp32: groupnorm's; mean and rstd [n, groups]; rows [n, kRows, channels]; partials [n, slabs, 2, channels].
#include <algorithm>
#include <cmath>

#include "kernels/core/parallel.h"
#include "kernels/core/vector_math.h"
#include "kernels/groupnorm_backward/groupnorm_backward.h"

namespace noisefloor::groupnorm_backward {
namespace {

constexpr std::int64_t kSlabRows = 128;  // short enough for a plain float sum
constexpr std::int64_t kChunk = 256;     // channels at a time: what is held of them stays in L1

// Of each channel of an image: xh = (x - mean) rstd, v = xh a + b, dx = dv of_dv + xh of_xh + constant; the sums over
// pixels times 1 + scale.
enum Row { mean, rstd, a, b, of_dv, of_xh, constant, sum, sum_xh, kRows };

std::int64_t slab_count(const Problem& p) {
  return (p.hw + kSlabRows - 1) / kSlabRows;
}
std::size_t statistics_bytes(const Problem& p, DType dtype, const DeviceInfo& device) {
  return aligned(groupnorm::host_workspace_bytes(statistics_of(p), dtype, device));
}

// The workspace, cut up.
struct Work {
  float *means, *rstds, *coefficients, *rows, *partials;

  Work(const Problem& p, float* base)
      : means(base),
        rstds(means + p.n * p.groups),
        coefficients(rstds + p.n * p.groups),
        rows(coefficients + 2 * p.n * p.channels),
        partials(rows + p.n * kRows * p.channels) {}
  static std::size_t floats(const Problem& p) {
    return static_cast<std::size_t>(2 * p.n * p.groups + (2 + kRows + 2 * slab_count(p)) * p.n * p.channels);
  }
  float* row(const Problem& p, std::int64_t image, Row which) const {
    return rows + (image * kRows + which) * p.channels;
  }
  float* partial(const Problem& p, std::int64_t image, std::int64_t slab) const {
    return partials + (image * slab_count(p) + slab) * 2 * p.channels;
  }
};

void prepare_image(const Problem& p, DType dtype, const Tensors& t, const Work& work, std::int64_t image) {
  for (std::int64_t c = 0; c < p.channels; ++c) {
    const std::int64_t group = image * p.groups + c / p.channels_per_group();
    const std::int64_t at = image * p.scale_shift_stride() + c;
    const double scaled = p.scale_shift() ? 1 + load_element(dtype, t.scale, at) : 1.0;
    const double shift = p.scale_shift() ? load_element(dtype, t.shift, at) : 0.0;
    work.row(p, image, mean)[c] = work.means[group];
    work.row(p, image, rstd)[c] = work.rstds[group];
    work.row(p, image, a)[c] = static_cast<float>(load_element(dtype, t.gamma, c) * scaled);
    work.row(p, image, b)[c] = static_cast<float>(load_element(dtype, t.beta, c) * scaled + shift);
  }
}

// The pixel's xh and dv of `width` channels from c on.
void load_pixel(const Problem& p, DType dtype, const Tensors& t, const Work& work, std::int64_t image,
                std::int64_t pixel, std::int64_t c, std::int64_t width, float* __restrict xh, float* __restrict dv) {
  load_floats(dtype, t.x, pixel * p.channels + c, width, xh);
  load_floats(dtype, t.dy, pixel * p.channels + c, width, dv);
  const float *means = work.row(p, image, mean) + c, *rstds = work.row(p, image, rstd) + c;
  for (std::int64_t i = 0; i < width; ++i) xh[i] = (xh[i] - means[i]) * rstds[i];
  if (p.fusion == Fusion::none) return;
  const float *as = work.row(p, image, a) + c, *bs = work.row(p, image, b) + c;
  for (std::int64_t i = 0; i < width; ++i) {
    const float v = xh[i] * as[i] + bs[i];
    const float s = 1 / (1 + vector_exp(-v));
    dv[i] *= s * (1 + v * (1 - s));
  }
}

void sum_slab(const Problem& p, DType dtype, const Tensors& t, const Work& work, std::int64_t image,
              std::int64_t slab) {
  float xh[kChunk], dv[kChunk], sums[kChunk], sums_xh[kChunk];
  const std::int64_t first = image * p.hw + slab * kSlabRows;
  const std::int64_t last = std::min(first + kSlabRows, (image + 1) * p.hw);
  float* const partial = work.partial(p, image, slab);
  for (std::int64_t c = 0; c < p.channels; c += kChunk) {
    const std::int64_t width = std::min(kChunk, p.channels - c);
    std::fill_n(sums, width, 0.0f);
    std::fill_n(sums_xh, width, 0.0f);
    for (std::int64_t pixel = first; pixel < last; ++pixel) {
      load_pixel(p, dtype, t, work, image, pixel, c, width, xh, dv);
      for (std::int64_t i = 0; i < width; ++i) {
        sums[i] += dv[i];
        sums_xh[i] += dv[i] * xh[i];
      }
    }
    std::copy_n(sums, width, partial + c);
    std::copy_n(sums_xh, width, partial + p.channels + c);
  }
}

void finish_group(const Problem& p, DType dtype, const Tensors& t, const Work& work, std::int64_t image,
                  std::int64_t group) {
  const std::int64_t first = group * p.channels_per_group(), last = first + p.channels_per_group();
  double mean_dh = 0, mean_dh_xh = 0;
  for (std::int64_t c = first; c < last; ++c) {
    double total = 0, total_xh = 0;
    for (std::int64_t slab = 0; slab < slab_count(p); ++slab) {
      total += work.partial(p, image, slab)[c];
      total_xh += work.partial(p, image, slab)[p.channels + c];
    }
    const double factor = work.row(p, image, a)[c];
    mean_dh += factor * total / static_cast<double>(p.group_size());
    mean_dh_xh += factor * total_xh / static_cast<double>(p.group_size());
    const std::int64_t at = image * p.scale_shift_stride() + c;
    const double scaled = p.scale_shift() ? 1 + load_element(dtype, t.scale, at) : 1.0;
    work.row(p, image, sum)[c] = static_cast<float>(scaled * total);
    work.row(p, image, sum_xh)[c] = static_cast<float>(scaled * total_xh);
    if (!p.scale_shift()) continue;
    store_element(dtype, t.dscale, at,
                  load_element(dtype, t.gamma, c) * total_xh + load_element(dtype, t.beta, c) * total);
    store_element(dtype, t.dshift, at, total);
  }
  const float its_rstd = work.rstds[image * p.groups + group];
  for (std::int64_t c = first; c < last; ++c) {
    work.row(p, image, of_dv)[c] = its_rstd * work.row(p, image, a)[c];
    work.row(p, image, of_xh)[c] = static_cast<float>(-its_rstd * mean_dh_xh);
    work.row(p, image, constant)[c] = static_cast<float>(-its_rstd * mean_dh);
  }
}

void write_slab(const Problem& p, DType dtype, const Tensors& t, const Work& work, std::int64_t image,
                std::int64_t slab) {
  float xh[kChunk], dv[kChunk];
  const auto factor = static_cast<float>(p.residual_scale);
  const std::int64_t first = image * p.hw + slab * kSlabRows;
  const std::int64_t last = std::min(first + kSlabRows, (image + 1) * p.hw);
  for (std::int64_t pixel = first; pixel < last; ++pixel) {
    for (std::int64_t c = 0; c < p.channels; c += kChunk) {
      const std::int64_t width = std::min(kChunk, p.channels - c);
      load_pixel(p, dtype, t, work, image, pixel, c, width, xh, dv);
      const float *dvs = work.row(p, image, of_dv) + c, *xhs = work.row(p, image, of_xh) + c;
      const float* constants = work.row(p, image, constant) + c;
      for (std::int64_t i = 0; i < width; ++i) dv[i] = dv[i] * dvs[i] + (xh[i] * xhs[i] + constants[i]);
      if (p.residual) {
        load_floats(dtype, t.residual, pixel * p.channels + c, width, xh);
        for (std::int64_t i = 0; i < width; ++i) dv[i] += factor * xh[i];
      }
      store_floats(dtype, t.dx, pixel * p.channels + c, width, dv);
    }
  }
}

// Calls body(i / inner, i % inner) for i in [0, outer * inner), on all cores.
template <class Body>
void each_pair(std::int64_t outer, std::int64_t inner, const Body& body) {
  parallel_for(outer * inner, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) body(i / inner, i % inner);
  });
}

}  // namespace

std::size_t host_workspace_bytes(const Problem& p, DType dtype, const DeviceInfo& device) {
  return statistics_bytes(p, dtype, device) + Work::floats(p) * sizeof(float);
}

Status launch_host(const Problem& p, DType dtype, const Tensors& tensors, const Scratch& scratch,
                   const LaunchContext& context) {
  if (scratch.workspace == nullptr) return failure(StatusCode::invalid_argument, "groupnorm_backward: no workspace");
  const Tensors t = unpacked(p, dtype, tensors);
  const Work work(p, reinterpret_cast<float*>(static_cast<std::byte*>(scratch.workspace) +
                                              statistics_bytes(p, dtype, *context.device)));
  groupnorm::Tensors forward;
  forward.x = t.x, forward.gamma = t.gamma, forward.beta = t.beta;
  forward.y = work.coefficients, forward.mean = work.means, forward.rstd = work.rstds;
  if (const Status status = groupnorm::launch_host(statistics_of(p), dtype, forward, scratch, context); !status.ok())
    return status;
  parallel_for(p.n, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t image = begin; image < end; ++image) prepare_image(p, dtype, t, work, image);
  });
  each_pair(p.n, slab_count(p),
            [&](std::int64_t image, std::int64_t slab) { sum_slab(p, dtype, t, work, image, slab); });
  each_pair(p.n, p.groups,
            [&](std::int64_t image, std::int64_t group) { finish_group(p, dtype, t, work, image, group); });
  each_pair(p.n, slab_count(p),
            [&](std::int64_t image, std::int64_t slab) { write_slab(p, dtype, t, work, image, slab); });
  for (std::int64_t c = 0; c < p.channels; ++c) {
    double dbeta = 0, dgamma = 0;
    for (std::int64_t image = 0; image < p.n; ++image) {
      dbeta += work.row(p, image, sum)[c];
      dgamma += work.row(p, image, sum_xh)[c];
    }
    t.dbeta[c] = static_cast<float>(dbeta);
    t.dgamma[c] = static_cast<float>(dgamma);
  }
  return success();
}

}  // namespace noisefloor::groupnorm_backward
