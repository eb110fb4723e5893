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
#include "kernels/core/parallel.h"
#include "kernels/core/vector_math.h"
#include "kernels/product/host_product.h"

namespace noisefloor::convolution {
namespace {

using namespace host_product;

constexpr std::int64_t kTileM = 96;
constexpr std::int64_t kTileN = 512;
constexpr std::int64_t kChunk = 64;  // of k, so that the rows of a chunk stay in L1 while they are transposed
static_assert(kTileM % kMicroM == 0 && kTileN % kMicroN == 0, "a tile is a whole number of micro-kernels");
static_assert(kBlockK % kChunk == 0, "a chunk lies in one block of k");

std::int64_t packed_columns(const Convolution& c) {
  return round_up(c.cout, kMicroN);
}

// The taps, and behind them the channels of the second source.
std::int64_t sum_length(const Convolution& c) {
  return c.k() + c.side_channels();
}

// `count` channels of a sum, from `offset` of what is asked for on: of x under a tap, or of a second source's tensor.
enum class Source { x, side, side_skip };
struct Piece {
  Source source;
  int ty, tx;
  std::int64_t channel, offset, count;
};

// Calls body(piece) on the pieces of [begin, begin + count) of a sum that lie in one tap or tensor.
template <class Body>
void each_piece(const Convolution& c, std::int64_t begin, std::int64_t count, const Body& body) {
  for (std::int64_t done = 0; done < count;) {
    Piece piece{Source::x, 0, 0, 0, done, 0};
    std::int64_t left = 0;
    if (const std::int64_t beside = begin + done - c.k(); beside >= 0) {
      piece.source = beside < c.side ? Source::side : Source::side_skip;
      piece.channel = beside < c.side ? beside : beside - c.side;
      left = (beside < c.side ? c.side : c.side_skip) - piece.channel;
    } else {
      const auto tap = static_cast<int>((begin + done) / c.cin);
      piece.ty = tap / c.x.taps, piece.tx = tap % c.x.taps;
      piece.channel = (begin + done) % c.cin;
      left = c.cin - piece.channel;
    }
    piece.count = std::min(count - done, left);
    body(piece);
    done += piece.count;
  }
}

// The places of a tile's rows: the tile's pixels, or nothing past the last.
struct Row {
  std::int64_t image;
  int y, x;
  bool inside;
};

// `count` inputs as the norm leaves them in `dtype`, in place; their multipliers at `scale`, cin before the addends.
void normalise(const Convolution& c, DType dtype, const float* scale, std::int64_t count, float* v) {
  for (std::int64_t i = 0; i < count; ++i) v[i] = v[i] * scale[i] + scale[c.cin + i];
  if (c.norm == Norm::affine_silu)
    for (std::int64_t i = 0; i < count; ++i) v[i] = vector_silu(v[i]);
  if (dtype == DType::fp32) return;
  std::uint16_t rounded[kChunk];
  store_floats(dtype, rounded, 0, count, v);
  load_floats(dtype, rounded, 0, count, v);
}

// A piece of a row's inputs.
void load_inputs(const Convolution& c, DType dtype, const Operands& o, int phase, const Row& row, const Piece& piece,
                 float* to) {
  if (piece.source != Source::x && row.inside) {  // one phase, whose rows are the pixels of the output
    const bool skip = piece.source == Source::side_skip;
    const std::int64_t pixel = row.image * c.phase_pixels() + std::int64_t{row.y} * c.x.out + row.x;
    return load_floats(dtype, skip ? o.side_skip : o.side, pixel * (skip ? c.side_skip : c.side) + piece.channel,
                       piece.count, to);
  }
  const int iy = row.inside ? input_coordinate(c.y, row.y, phase / c.x.phases, piece.ty) : -1;
  const int ix = row.inside ? input_coordinate(c.x, row.x, phase % c.x.phases, piece.tx) : -1;
  if (iy < 0 || ix < 0) {
    std::fill_n(to, piece.count, 0.0f);
    return;
  }
  const std::int64_t pixel = (row.image * c.y.in + iy) * c.x.in + ix;
  load_floats(dtype, o.x, pixel * c.cin + piece.channel, piece.count, to);
  if (c.norm != Norm::none) normalise(c, dtype, o.norm + row.image * 2 * c.cin + piece.channel, piece.count, to);
}

// Gathers [k0, k0 + depth) of the inputs of `rows` (a multiple of kMicroM of them) into panels at `packed`.
void pack_inputs(const Convolution& c, DType dtype, const Operands& o, int phase, const Row* rows, std::int64_t count,
                 std::int64_t k0, std::int64_t depth, float* packed) {
  float chunk[kMicroM][kChunk];
  for (std::int64_t panel = 0; panel < count; panel += kMicroM) {
    for (std::int64_t done = 0; done < depth; done += kChunk) {
      const std::int64_t length = std::min(kChunk, depth - done);
      each_piece(c, k0 + done, length, [&](const Piece& piece) {
        for (int r = 0; r < kMicroM; ++r)
          load_inputs(c, dtype, o, phase, rows[panel + r], piece, chunk[r] + piece.offset);
      });
      float* out = packed + panel * depth + done * kMicroM;
      for (std::int64_t i = 0; i < length; ++i)
        for (int r = 0; r < kMicroM; ++r) out[i * kMicroM + r] = chunk[r][i];
    }
  }
}

// The weights of output channel `channel_out` of a phase for a piece of its sum.
void load_weights(const Convolution& c, DType dtype, const Operands& o, bool summed, int phase,
                  std::int64_t channel_out, const Piece& piece, float* out) {
  const auto [source, ty, tx, channel, offset, count] = piece;
  if (source != Source::x) {
    const std::int64_t column = (source == Source::side ? 0 : c.side) + channel;
    return load_floats(dtype, o.w_side, channel_out * c.side_channels() + column, count, out);
  }
  if (!summed) {
    const std::int64_t row = (c.phase_weights ? std::int64_t{phase} * c.cout : 0) + channel_out;
    load_floats(dtype, o.w, row * c.weight_row() + kernel_tap(c, phase, ty, tx) * std::int64_t{c.cin} + channel, count,
                out);
    return;
  }
  const TapRange ys = summed_taps(phase / 2, ty);
  const TapRange xs = summed_taps(phase % 2, tx);
  float more[kChunk];
  std::fill_n(out, count, 0.0f);
  for (int ky = ys.first; ky <= ys.last; ++ky)
    for (int kx = xs.first; kx <= xs.last; ++kx) {
      load_floats(dtype, o.w, ((channel_out * 3 + ky) * 3 + kx) * c.cin + channel, count, more);
      for (std::int64_t i = 0; i < count; ++i) out[i] += more[i];
    }
}

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

void finish_row(const Convolution& c, DType dtype, const Operands& o, const Columns& columns, std::int64_t at,
                std::int64_t count, float* v) {
  for (std::int64_t i = 0; i < count; ++i) v[i] = v[i] * columns.mul[i] + columns.add[i] + columns.image_shift[i];
  if (c.act == Activation::silu)
    for (std::int64_t i = 0; i < count; ++i) v[i] = vector_silu(v[i]);
  if (c.act == Activation::relu)
    for (std::int64_t i = 0; i < count; ++i) v[i] = v[i] > 0 ? v[i] : v[i] * 0;  // NaN stays NaN
  if (c.residual) {
    float residual[kTileN];
    load_floats(dtype, o.residual, at, count, residual);
    for (std::int64_t i = 0; i < count; ++i) v[i] += residual[i];
  }
  if (c.gain != 1)
    for (std::int64_t i = 0; i < count; ++i) v[i] *= c.gain;
  store_floats(dtype, o.y, at, count, v);
}

struct Tile {
  int phase;
  std::int64_t row0, rows, column0, columns;
};

void make_tile(const Convolution& c, DType dtype, const Operands& o, const float* weights, const Tile& tile) {
  alignas(kVectorBytes) float sums[kTileM * kTileN];
  alignas(kVectorBytes) float inputs[kTileM * kBlockK];
  Row rows[kTileM];
  const std::int64_t height = round_up(tile.rows, kMicroM);
  for (std::int64_t i = 0; i < height; ++i) {
    const Pixel at = locate_row(c, tile.row0 + std::min(i, tile.rows - 1));
    rows[i] = {at.image, at.y, at.x, i < tile.rows};
  }
  const std::int64_t width = round_up(tile.columns, kMicroN);
  std::fill_n(sums, height * kTileN, 0.0f);
  const std::int64_t length = sum_length(c);
  for (std::int64_t k0 = 0; k0 < length; k0 += kBlockK) {
    const std::int64_t depth = std::min(kBlockK, length - k0);
    pack_inputs(c, dtype, o, tile.phase, rows, height, k0, depth, inputs);
    const float* b = weights + (tile.phase * length + k0) * packed_columns(c) + tile.column0 * depth;
    for (std::int64_t j = 0; j < width; j += kMicroN)
      for (std::int64_t i = 0; i < height; i += kMicroM)
        micro_kernel(depth, inputs + i * depth, b + j * depth, sums + i * kTileN + j, kTileN);
  }
  Columns columns(c, dtype, o, tile.column0, tile.columns);
  std::int64_t held_image = -1;
  for (std::int64_t i = 0; i < tile.rows; ++i) {
    if (c.image_shift && rows[i].image != held_image) {
      held_image = rows[i].image;
      load_floats(dtype, o.image_shift, held_image * c.cout + tile.column0, tile.columns, columns.image_shift);
    }
    const std::int64_t at = output_pixel(c, tile.phase, tile.row0 + i) * c.cout + tile.column0;
    finish_row(c, dtype, o, columns, at, tile.columns, sums + i * kTileN);
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

std::size_t host_prepared_bytes(const Convolution& c) {
  return static_cast<std::size_t>(c.phases() * sum_length(c) * packed_columns(c)) * sizeof(float);
}

Status prepare_host(const Convolution& c, DType dtype, const Operands& o, bool summed, void* prepared) {
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
              load_weights(c, dtype, o, summed, phase, out, piece, chunk[r] + piece.offset);
            else
              std::fill_n(chunk[r] + piece.offset, piece.count, 0.0f);
          }
        });
        const std::int64_t block = k0 / kBlockK * kBlockK;
        const std::int64_t depth = std::min(kBlockK, whole - block);
        float* out =
            packed + (phase * whole + block) * packed_columns(c) + panel * kMicroN * depth + (k0 - block) * kMicroN;
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
  const std::int64_t tiles_m = (c.phase_rows() + kTileM - 1) / kTileM;
  const std::int64_t wanted = 2 * std::max(1, context.device->sm_count);  // tasks: two a core balance
  const std::int64_t parts = std::max<std::int64_t>(1, wanted / (tiles_m * c.phases()));
  const std::int64_t tile_n =
      std::clamp(round_up((c.cout + parts - 1) / parts, kMicroN), std::int64_t{4 * kMicroN}, kTileN);
  const std::int64_t tiles_n = (c.cout + tile_n - 1) / tile_n;
  parallel_for(c.phases() * tiles_m * tiles_n, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      Tile tile;
      tile.phase = static_cast<int>(t / (tiles_m * tiles_n));
      tile.row0 = t / tiles_n % tiles_m * kTileM;
      tile.rows = std::min(kTileM, c.phase_rows() - tile.row0);
      tile.column0 = t % tiles_n * tile_n;
      tile.columns = std::min(tile_n, c.cout - tile.column0);
      make_tile(c, dtype, o, weights, tile);
    }
  });
  if (c.stats)
    parallel_for(c.images * c.slabs(), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t s = begin; s < end; ++s) slab_statistics(c, dtype, o, s / c.slabs(), s % c.slabs());
    });
  return success();
}

}  // namespace noisefloor::convolution
