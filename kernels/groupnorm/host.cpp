// The op on the host in float: channels are contiguous, so every inner loop runs along them and vectorises.
//
// 1. Slabs of rows in parallel: mean and M2 (sum of squared deviations) of each channel, shifted by the slab's first
// row.
// 2. Groups in parallel: slabs and channels merged by Chan's formula, in fixed order, into a mean and a multiply-add
// per channel. The mean is subtracted first: folded into the addend it would cancel where a group is nearly constant.
// 3. Slabs in parallel: the multiply-add and SiLU; with down_w slabs of y, whose pixels are means of four.
// Workspace: [n, slabs, 2, channels] partials, [n, 3, channels] coefficients, fp32.
// Source: Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances" (1979).
#include <algorithm>
#include <cmath>

#include "kernels/core/parallel.h"
#include "kernels/core/vector_math.h"
#include "kernels/groupnorm/groupnorm.h"

namespace noisefloor::groupnorm {
namespace {

constexpr std::int64_t kSlabRows = 128;  // short enough for a plain float sum of shifted values
constexpr std::int64_t kChunk = 256;     // channels at a time: four float arrays of that length stay in L1

std::int64_t slab_count(std::int64_t pixels) {
  return (pixels + kSlabRows - 1) / kSlabRows;
}

void slab_statistics(const Problem& p, DType dtype, const Tensors& t, std::int64_t first_row, std::int64_t rows,
                     float* partial) {
  float row[kChunk], shift[kChunk], sum[kChunk], squares[kChunk];
  for (std::int64_t c = 0; c < p.channels; c += kChunk) {
    const std::int64_t width = std::min(kChunk, p.channels - c);
    load_channels(p, dtype, t, first_row, c, width, shift);
    std::fill_n(sum, width, 0.0f);
    std::fill_n(squares, width, 0.0f);
    for (std::int64_t s = 1; s < rows; ++s) {
      load_channels(p, dtype, t, first_row + s, c, width, row);
      for (std::int64_t i = 0; i < width; ++i) {
        const float d = row[i] - shift[i];
        sum[i] += d;
        squares[i] += d * d;
      }
    }
    const float scale = 1.0f / static_cast<float>(rows);
    for (std::int64_t i = 0; i < width; ++i) {
      const float offset = sum[i] * scale;
      partial[c + i] = shift[i] + offset;
      partial[p.channels + c + i] = std::max(squares[i] - sum[i] * offset, 0.0f);
    }
  }
}

// Partial moments of the channels of a slab: those of slab_statistics, or given ones.
struct Partials {
  const float *mean, *m2;
  std::int64_t stride, slabs;  // floats from slab to slab, slabs of an image

  Partials(const Problem& p, const Tensors& t, const float* own)
      : mean(p.given() ? t.slab_mean : own),
        m2(p.given() ? t.slab_m2 : own + p.channels),
        stride(p.given() ? p.channels : 2 * p.channels),
        slabs(p.given() ? p.given_slabs() : slab_count(p.hw)) {}
};

// Merges the partials of one group and writes the coefficients of its channels.
void finish_group(const Problem& p, DType dtype, const Tensors& t, const Partials& partials, std::int64_t image,
                  std::int64_t group, float* coefficients) {
  const std::int64_t width = p.channels_per_group();
  const std::int64_t first = group * width;
  double count = 0, mean = 0, m2 = 0;
  for (std::int64_t slab = 0; slab < partials.slabs; ++slab) {
    const std::int64_t at = (image * partials.slabs + slab) * partials.stride;
    const auto rows =
        static_cast<double>(p.given() ? p.given_rows(slab) : std::min(kSlabRows, p.hw - slab * kSlabRows));
    for (std::int64_t c = first; c < first + width; ++c) {
      const double delta = partials.mean[at + c] - mean;
      mean += delta * rows / (count + rows);
      m2 += partials.m2[at + c] + delta * delta * count * rows / (count + rows);
      count += rows;
    }
  }
  const double rstd = 1 / std::sqrt(m2 / count + p.eps);
  if (p.stats) {
    t.mean[image * p.groups + group] = static_cast<float>(mean);
    t.rstd[image * p.groups + group] = static_cast<float>(rstd);
  }
  for (std::int64_t c = first; c < first + width; ++c) {
    double a = rstd * load_element(p.affine_dtype(dtype), t.gamma, c);
    double b = load_element(p.affine_dtype(dtype), t.beta, c);
    if (p.scale_shift()) {
      const std::int64_t at = image * p.scale_shift_stride() + c;
      const double scale = 1 + load_element(dtype, t.scale, at);
      a *= scale;
      b = b * scale + load_element(dtype, t.shift, at);
    }
    coefficients[c] = static_cast<float>(a);
    coefficients[p.channels + c] = static_cast<float>(b);
    coefficients[2 * p.channels + c] = static_cast<float>(mean);
    if (p.coefficients) {
      float* out = static_cast<float*>(t.y) + image * 2 * p.channels + c;
      out[0] = static_cast<float>(a);
      out[p.channels] = static_cast<float>(b - mean * a);
    }
  }
}

// fusion(x * a + b) of `width` channels from `c` on, whose x are in `row`.
void normalise_row(const Problem& p, const float* coefficients, std::int64_t c, std::int64_t width, float* row) {
  const float* a = coefficients + c;
  const float* b = coefficients + p.channels + c;
  const float* mean = coefficients + 2 * p.channels + c;
  for (std::int64_t i = 0; i < width; ++i) row[i] = (row[i] - mean[i]) * a[i] + b[i];
  if (p.fusion == Fusion::none) return;
  for (std::int64_t i = 0; i < width; ++i) row[i] = vector_silu(row[i]);
}

// `pixels` of y and x_down, counted over all images.
void write_slab(const Problem& p, DType dtype, const Tensors& t, const float* coefficients, std::int64_t first_pixel,
                std::int64_t pixels) {
  float row[kChunk], y[kChunk], x[kChunk];
  alignas(16) std::byte rounded[kChunk * sizeof(float)];
  for (std::int64_t pixel = first_pixel; pixel < first_pixel + pixels; ++pixel) {
    for (std::int64_t c = 0; c < p.channels; c += kChunk) {
      const std::int64_t width = std::min(kChunk, p.channels - c);
      if (!p.down()) {
        load_channels(p, dtype, t, pixel, c, width, row);
        normalise_row(p, coefficients, c, width, row);
        store_floats(dtype, t.y, pixel * p.channels + c, width, row);
        continue;
      }
      const std::int64_t first = p.first_of_four(pixel);
      std::fill_n(y, width, 0.0f);
      std::fill_n(x, width, 0.0f);
      for (const std::int64_t corner : {first, first + 1, first + p.down_w, first + p.down_w + 1}) {
        load_channels(p, dtype, t, corner, c, width, row);
        for (std::int64_t i = 0; i < width; ++i) x[i] += 0.25f * row[i];
        normalise_row(p, coefficients, c, width, row);
        store_floats(dtype, rounded, 0, width, row);
        load_floats(dtype, rounded, 0, width, row);
        for (std::int64_t i = 0; i < width; ++i) y[i] += 0.25f * row[i];
      }
      store_floats(dtype, t.y, pixel * p.channels + c, width, y);
      store_floats(dtype, t.x_down, pixel * p.channels + c, width, x);
    }
  }
}

}  // namespace

std::size_t host_workspace_bytes(const Problem& p, DType, const DeviceInfo&) {
  return static_cast<std::size_t>(p.n * (slab_count(p.hw) * 2 + 3) * p.channels) * sizeof(float);
}

Status launch_host(const Problem& p, DType dtype, const Tensors& tensors, const Scratch& scratch,
                   const LaunchContext&) {
  const Tensors t = unpacked(p, dtype, tensors);
  const std::int64_t slabs = slab_count(p.hw);
  auto* partials = static_cast<float*>(scratch.workspace);
  float* coefficients = partials + p.n * slabs * 2 * p.channels;
  const auto each_slab = [&](std::int64_t pixels, const auto& body) {
    const std::int64_t count = slab_count(pixels);
    parallel_for(p.n * count, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t row = i % count * kSlabRows;
        body(i, i / count, i / count * pixels + row, std::min(kSlabRows, pixels - row));
      }
    });
  };
  if (!p.given())
    each_slab(p.hw, [&](std::int64_t index, std::int64_t, std::int64_t first_row, std::int64_t rows) {
      slab_statistics(p, dtype, t, first_row, rows, partials + index * 2 * p.channels);
    });
  parallel_for(p.n * p.groups, 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      finish_group(p, dtype, t, Partials(p, t, partials), i / p.groups, i % p.groups,
                   coefficients + i / p.groups * 3 * p.channels);
  });
  if (!p.coefficients)
    each_slab(p.y_pixels(), [&](std::int64_t, std::int64_t image, std::int64_t first, std::int64_t pixels) {
      write_slab(p, dtype, t, coefficients + image * 3 * p.channels, first, pixels);
    });
  return success();
}

}  // namespace noisefloor::groupnorm
