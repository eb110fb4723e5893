// layernorm_backward on the host, in float on all cores. Slabs of rows of an image in parallel: each row's mean,
// variance and means of dh and dh xh, in float within a chunk of channels and in double across chunks; its dx; and the
// slab's sums of dy and dy xh. Then channels in parallel: slabs and images added in fixed order, in double. Workspace,
// fp32: sums [images, slabs, 2, channels].
#include <algorithm>
#include <cmath>

#include "kernels/core/host_chunks.h"
#include "kernels/layernorm_backward/layernorm_backward.h"

namespace noisefloor::layernorm_backward {
namespace {

constexpr std::int64_t kSlabRows = 64;        // short enough for a plain float sum
constexpr std::int64_t kFinishChannels = 64;  // of a task of the last step

std::int64_t slab_count(const Problem& p) {
  return (p.rows_per_image() + kSlabRows - 1) / kSlabRows;
}

struct Buffers {
  float x[kHostChunk], dy[kHostChunk], dh[kHostChunk], other[kHostChunk];
};

// x, dy and dh of `count` channels of a row from c on.
void load_chunk(const Problem& p, DType dtype, const Tensors& t, std::int64_t row, std::int64_t c, std::int64_t count,
                Buffers& b) {
  load_floats(dtype, t.x, row * p.channels + c, count, b.x);
  load_floats(dtype, t.dy, row * p.channels + c, count, b.dy);
  std::copy_n(b.dy, count, b.dh);
  if (p.affine) {
    load_floats(dtype, t.gamma, c, count, b.other);
    for (std::int64_t i = 0; i < count; ++i) b.dh[i] *= b.other[i];
  }
  if (p.scale_shift()) {
    load_floats(dtype, t.scale, row / p.rows_per_image() * p.channels + c, count, b.other);
    for (std::int64_t i = 0; i < count; ++i) b.dh[i] *= 1 + b.other[i];
  }
}

// dx of a row; adds its dy and dy xh to `sums`, [2, channels], where there are any.
void backward_row(const Problem& p, DType dtype, const Tensors& t, std::int64_t row, float* sums, Buffers& b) {
  const auto length = static_cast<double>(p.channels);
  // body(c, count) with the channels from c on in b, which holds a short row from the first pass on.
  const auto each_chunk = [&](bool first_pass, const auto& body) {
    for (std::int64_t c = 0; c < p.channels; c += kHostChunk) {
      const std::int64_t count = std::min(kHostChunk, p.channels - c);
      if (first_pass || p.channels > kHostChunk) load_chunk(p, dtype, t, row, c, count, b);
      body(c, count);
    }
  };
  double total = 0, squares = 0, total_dh = 0, total_dh_xh = 0;
  each_chunk(true, [&](std::int64_t, std::int64_t count) {
    float part = 0, part_dh = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      part += b.x[i];
      part_dh += b.dh[i];
    }
    total += part;
    total_dh += part_dh;
  });
  const auto mean = static_cast<float>(total / length);
  each_chunk(false, [&](std::int64_t, std::int64_t count) {
    float part = 0, part_dh_x = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      part += (b.x[i] - mean) * (b.x[i] - mean);
      part_dh_x += b.dh[i] * (b.x[i] - mean);
    }
    squares += part;
    total_dh_xh += part_dh_x;
  });
  const double exact_rstd = 1 / std::sqrt(squares / length + p.eps);
  const auto rstd = static_cast<float>(exact_rstd);
  const auto mean_dh = static_cast<float>(total_dh / length);
  const auto mean_dh_xh = static_cast<float>(total_dh_xh * exact_rstd / length);
  const auto factor = static_cast<float>(p.residual_scale);
  each_chunk(false, [&](std::int64_t c, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      b.x[i] = (b.x[i] - mean) * rstd;
      b.dh[i] = rstd * (b.dh[i] - mean_dh - b.x[i] * mean_dh_xh);
    }
    if (p.residual) {
      load_floats(dtype, t.residual, row * p.channels + c, count, b.other);
      for (std::int64_t i = 0; i < count; ++i) b.dh[i] += factor * b.other[i];
    }
    store_floats(dtype, t.dx, row * p.channels + c, count, b.dh);
    if (sums == nullptr) return;
    float *plain = sums + c, *with_xh = sums + p.channels + c;
    for (std::int64_t i = 0; i < count; ++i) {
      plain[i] += b.dy[i];
      with_xh[i] += b.dy[i] * b.x[i];
    }
  });
}

// Adds the slabs' sums of the channels [first, last).
void finish_channels(const Problem& p, DType dtype, const Tensors& t, const float* sums, std::int64_t first,
                     std::int64_t last) {
  const std::int64_t slabs = slab_count(p), count = last - first;
  double dbeta[kFinishChannels] = {}, dgamma[kFinishChannels] = {};
  for (std::int64_t image = 0; image < p.images; ++image) {
    double plain[kFinishChannels] = {}, with_xh[kFinishChannels] = {};
    for (std::int64_t slab = 0; slab < slabs; ++slab) {
      const float* const from = sums + (image * slabs + slab) * 2 * p.channels + first;
      for (std::int64_t i = 0; i < count; ++i) {
        plain[i] += from[i];
        with_xh[i] += from[p.channels + i];
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
  return p.sums() ? static_cast<std::size_t>(p.images * slab_count(p) * 2 * p.channels) * sizeof(float) : 0;
}

Status launch_host(const Problem& p, DType dtype, const Tensors& t, const Scratch& scratch, const LaunchContext&) {
  auto* const sums = p.sums() ? static_cast<float*>(scratch.workspace) : nullptr;
  if (p.sums() && sums == nullptr) return failure(StatusCode::invalid_argument, "layernorm_backward: no workspace");
  const std::int64_t slabs = slab_count(p);
  parallel_for(p.images * slabs, 1, [&](std::int64_t begin, std::int64_t end) {
    Buffers buffers;
    for (std::int64_t i = begin; i < end; ++i) {
      float* const own = sums == nullptr ? nullptr : sums + i * 2 * p.channels;
      if (own != nullptr) std::fill_n(own, 2 * p.channels, 0.0f);
      const std::int64_t image = i / slabs, first = i % slabs * kSlabRows;
      const std::int64_t last = std::min(first + kSlabRows, p.rows_per_image());
      for (std::int64_t row = first; row < last; ++row)
        backward_row(p, dtype, t, image * p.rows_per_image() + row, own, buffers);
    }
  });
  if (sums != nullptr)
    parallel_for(p.channels, kFinishChannels,
                 [&](std::int64_t begin, std::int64_t end) { finish_channels(p, dtype, t, sums, begin, end); });
  return success();
}

}  // namespace noisefloor::layernorm_backward
