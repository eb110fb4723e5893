// layernorm on the host, in float on all cores: a row at a time, in chunks that stay in cache and loops that vectorise.
// Moments take two passes, in float within a chunk and in double across chunks: the mean, then the squares of the
// deviations from it. (In one pass, about any element of the row, digits are lost where that element is an outlier.)
#include <algorithm>
#include <cmath>

#include "kernels/core/host_chunks.h"
#include "kernels/layernorm/layernorm.h"

namespace noisefloor::layernorm {
namespace {

struct Buffers {
  float s[kHostChunk], other[kHostChunk], scale[kHostChunk];
};

// Elements [begin, begin + count) of x, or of x + residual.
void load_sum(DType dtype, const Tensors& t, std::int64_t begin, std::int64_t count, Buffers& b) {
  load_floats(dtype, t.x, begin, count, b.s);
  if (t.residual == nullptr) return;
  load_floats(dtype, t.residual, begin, count, b.other);
  for (std::int64_t i = 0; i < count; ++i) b.s[i] += b.other[i];
}

void normalise_row(const Problem& p, DType dtype, const Tensors& t, std::int64_t row, Buffers& b) {
  const std::int64_t first = row * p.channels;
  const double length = static_cast<double>(p.channels);
  // body(c, count) with the channels from c on in b.s, which holds a short row from the first pass on.
  const auto each_chunk = [&](bool first_pass, const auto& body) {
    for (std::int64_t c = 0; c < p.channels; c += kHostChunk) {
      const std::int64_t count = std::min(kHostChunk, p.channels - c);
      if (first_pass || p.channels > kHostChunk) load_sum(dtype, t, first + c, count, b);
      body(c, count);
    }
  };
  double total = 0, squares = 0;
  each_chunk(true, [&](std::int64_t, std::int64_t count) {
    float part = 0;
    for (std::int64_t i = 0; i < count; ++i) part += b.s[i];
    total += part;
  });
  const auto mean = static_cast<float>(total / length);
  each_chunk(false, [&](std::int64_t, std::int64_t count) {
    float part = 0;
    for (std::int64_t i = 0; i < count; ++i) part += (b.s[i] - mean) * (b.s[i] - mean);
    squares += part;
  });
  const auto rstd = static_cast<float>(1 / std::sqrt(squares / length + p.eps));
  const std::int64_t image = row / p.rows_per_image() * p.channels;
  each_chunk(false, [&](std::int64_t c, std::int64_t count) {
    if (t.sum != nullptr) store_floats(dtype, t.sum, first + c, count, b.s);
    for (std::int64_t i = 0; i < count; ++i) b.s[i] = (b.s[i] - mean) * rstd;
    const auto scale_and_add = [&](const void* scale, const void* addend, std::int64_t at, float one) {
      load_floats(dtype, scale, at, count, b.scale);
      load_floats(dtype, addend, at, count, b.other);
      for (std::int64_t i = 0; i < count; ++i) b.s[i] = b.s[i] * (one + b.scale[i]) + b.other[i];
    };
    if (p.affine) scale_and_add(t.gamma, t.beta, c, 0);
    if (p.scale_shift()) scale_and_add(t.scale, t.shift, image + c, 1);
    store_floats(dtype, t.y, first + c, count, b.s);
  });
}

}  // namespace

Status launch_host(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext&) {
  const std::int64_t grain = std::max<std::int64_t>(1, 16384 / p.channels);
  parallel_for(p.rows, grain, [&](std::int64_t begin, std::int64_t end) {
    Buffers buffers;
    for (std::int64_t row = begin; row < end; ++row) normalise_row(p, dtype, t, row, buffers);
  });
  return success();
}

}  // namespace noisefloor::layernorm
