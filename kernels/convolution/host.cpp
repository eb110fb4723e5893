// Convolutions on the host: float, all cores, vector instructions chosen by the compiler.
//
// `prepare` widens the weights to float and packs them once into panels (kernels/product/host_product.h); phases that
// sum weights sum them here in float. A task makes a tile of kTileM output pixels x up to kTileN channels: per block of
// k it gathers the pixels' inputs (im2col, at most 96 KiB, never more of it at a time) into panels, which stay in L2
// while the micro-kernel runs them against the weights. Tiles narrow where there would be too few for the cores.
//
// Bound: FMA throughput. Requires: nothing. Numerics: fp32 sums per block of k, added in order.
#include <algorithm>

#include "kernels/convolution/convolution.h"
#include "kernels/convolution/host_gather.h"
#include "kernels/convolution/host_tile.h"
#include "kernels/core/parallel.h"
#include "kernels/product/host_product.h"

namespace noisefloor::convolution {
namespace {

using namespace host_gather;
using namespace host_product;
using namespace host_tile;

// What the epilogue does to a channel, widened once per task.
struct Columns {
  float mul[kTileN], add[kTileN], image_shift[kTileN];

  Columns(const Convolution& c, DType dtype, const Operands& o, std::int64_t column0, std::int64_t count) {
    std::fill_n(mul, count, 1.0f);
    std::fill_n(add, count, 0.0f);
    std::fill_n(image_shift, count, 0.0f);
    if (c.bias) load_floats(dtype, o.bias, column0, count, add);
    if (!c.affine) return;
    float shift[kTileN];
    load_floats(dtype, o.scale, column0, count, mul);
    load_floats(dtype, o.shift, column0, count, shift);
    for (std::int64_t i = 0; i < count; ++i) add[i] = add[i] * mul[i] + shift[i];
  }
};

// Of `count` channels from `column0` on of an output pixel.
void finish_row(const Convolution& c, DType dtype, const Operands& o, const Columns& columns, std::int64_t pixel,
                std::int64_t column0, std::int64_t count, float* v) {
  for (std::int64_t i = 0; i < count; ++i) v[i] = v[i] * columns.mul[i] + columns.add[i] + columns.image_shift[i];
  if (c.act == Activation::silu)
    for (std::int64_t i = 0; i < count; ++i) v[i] = vector_silu(v[i]);
  if (c.act == Activation::relu)
    for (std::int64_t i = 0; i < count; ++i) v[i] = v[i] > 0 ? v[i] : v[i] * 0;  // NaN stays NaN
  if (c.residual) {
    float residual[kTileN];
    const std::int64_t added = c.residual_upsample ? repeated_pixel(c.x.out, pixel) : pixel;
    load_floats(dtype, o.residual, added * c.cout + column0, count, residual);
    for (std::int64_t i = 0; i < count; ++i) v[i] += residual[i];
  }
  if (c.gain != 1)
    for (std::int64_t i = 0; i < count; ++i) v[i] *= c.gain;
  store_floats(dtype, o.y, pixel * c.cout + column0, count, v);
}

// The epilogue of a tile's sums.
void finish_tile(const Convolution& c, DType dtype, const Operands& o, const Tile& tile, const Row* rows, float* sums) {
  Columns columns(c, dtype, o, tile.column0, tile.columns);
  std::int64_t held_image = -1;
  for (std::int64_t i = 0; i < tile.rows; ++i) {
    if (c.image_shift && rows[i].image != held_image) {
      held_image = rows[i].image;
      load_floats(dtype, o.image_shift, held_image * c.cout + tile.column0, tile.columns, columns.image_shift);
    }
    const std::int64_t pixel = output_pixel(c, tile.phase, tile.row0 + i);
    finish_row(c, dtype, o, columns, pixel, tile.column0, tile.columns, sums + i * kTileN);
  }
}

// Mean and M2 of every channel of one slab, from y as stored; two passes over at most kSlabRows rows.
void slab_statistics(const Convolution& c, DType dtype, const Operands& o, std::int64_t image, std::int64_t slab) {
  const auto phase = static_cast<int>(slab / c.phase_slabs());
  const std::int64_t first = image * c.phase_pixels();
  const std::int64_t count = slab_count(c, slab);
  float row[kTileN];
  for (std::int64_t c0 = 0; c0 < c.cout; c0 += kTileN) {
    const std::int64_t width = std::min<std::int64_t>(kTileN, c.cout - c0);
    float* mean = o.mean + (image * c.slabs() + slab) * c.cout + c0;
    float* m2 = o.m2 + (image * c.slabs() + slab) * c.cout + c0;
    const auto each_row = [&](const auto& body) {
      for (std::int64_t i = 0; i < count; ++i) {
        load_floats(dtype, o.y, output_pixel(c, phase, first + slab_row(c, slab, i)) * c.cout + c0, width, row);
        body();
      }
    };
    std::fill_n(mean, width, 0.0f);
    std::fill_n(m2, width, 0.0f);
    each_row([&] {
      for (std::int64_t j = 0; j < width; ++j) mean[j] += row[j];
    });
    for (std::int64_t j = 0; j < width; ++j) mean[j] /= static_cast<float>(count);
    each_row([&] {
      for (std::int64_t j = 0; j < width; ++j) m2[j] += (row[j] - mean[j]) * (row[j] - mean[j]);
    });
  }
}

}  // namespace

std::size_t host_prepared_bytes(const Convolution& c, DType) {
  return packed_weight_bytes(c);
}

Status prepare_host(const Convolution& c, DType dtype, const Operands& o, void* prepared, const LaunchContext&) {
  const std::int64_t whole = sum_length(c);
  auto* packed = static_cast<float*>(prepared);
  const std::int64_t panels = packed_columns(c) / kMicroN;
  parallel_for(c.phases() * panels, 1, [&](std::int64_t begin, std::int64_t end) {
    float chunk[kMicroN][kChunk];
    for (std::int64_t task = begin; task < end; ++task) {
      const auto phase = static_cast<int>(task / panels);
      const std::int64_t panel = task % panels;
      for (std::int64_t k0 = 0; k0 < whole; k0 += kChunk) {
        const std::int64_t length = std::min(kChunk, whole - k0);
        each_piece(c, k0, length, [&](const Piece& piece) {
          for (int r = 0; r < kMicroN; ++r) {
            const std::int64_t out = panel * kMicroN + r;
            if (out < c.cout)
              load_weights(c, dtype, o, phase, out, piece, chunk[r] + piece.offset);
            else
              std::fill_n(chunk[r] + piece.offset, piece.count, 0.0f);
          }
        });
        float* out = packed + packed_place(c, phase, panel, k0);
        for (std::int64_t i = 0; i < length; ++i)
          for (int r = 0; r < kMicroN; ++r) out[i * kMicroN + r] = chunk[r][i];
      }
    }
  });
  return success();
}

Status launch_host(const Convolution& c, DType dtype, const Operands& o, const Scratch& scratch,
                   const LaunchContext& context) {
  if (scratch.prepared == nullptr) return failure(StatusCode::invalid_argument, "convolution: weights not prepared");
  const auto* weights = static_cast<const float*>(scratch.prepared);
  each_tile(c, context, [&](const Tile& tile) {
    make_tile(c, dtype, o, weights, tile,
              [&](const Row* rows, float* sums) { finish_tile(c, dtype, o, tile, rows, sums); });
  });
  if (c.stats)
    parallel_for(c.images * c.slabs(), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t s = begin; s < end; ++s) slab_statistics(c, dtype, o, s / c.slabs(), s % c.slabs());
    });
  return success();
}

}  // namespace noisefloor::convolution
