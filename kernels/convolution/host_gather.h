// What a convolution on the host sums up: inputs and weights, gathered in float as one product's panels want them. A
// sum runs over the channels under each tap, and behind these over a second source's (side, side_skip).
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/convolution/convolution.h"
#include "kernels/core/vector_math.h"
#include "kernels/product/host_product.h"

namespace noisefloor::convolution::host_gather {

using host_product::kMicroM;

inline constexpr std::int64_t kChunk = 64;  // of k, so that the rows of a chunk stay in L1 while they are transposed

// The taps, and behind them the channels of the second source.
inline std::int64_t sum_length(const Convolution& c) {
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
inline void normalise(const Convolution& c, DType dtype, const float* scale, std::int64_t count, float* v) {
  for (std::int64_t i = 0; i < count; ++i) v[i] = v[i] * scale[i] + scale[c.cin + i];
  if (c.norm == Norm::affine_silu)
    for (std::int64_t i = 0; i < count; ++i) v[i] = vector_silu(v[i]);
  if (dtype == DType::fp32) return;
  std::uint16_t rounded[kChunk];
  store_floats(dtype, rounded, 0, count, v);
  load_floats(dtype, rounded, 0, count, v);
}

// A piece of a row's inputs.
inline void load_inputs(const Convolution& c, DType dtype, const Operands& o, int phase, const Row& row,
                        const Piece& piece, float* to) {
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
inline void pack_inputs(const Convolution& c, DType dtype, const Operands& o, int phase, const Row* rows,
                        std::int64_t count, std::int64_t k0, std::int64_t depth, float* packed) {
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
inline void load_weights(const Convolution& c, DType dtype, const Operands& o, int phase, std::int64_t channel_out,
                         const Piece& piece, float* out) {
  const auto [source, ty, tx, channel, offset, count] = piece;
  if (source != Source::x) {
    const std::int64_t column = (source == Source::side ? 0 : c.side) + channel;
    return load_floats(dtype, o.w_side, channel_out * c.side_channels() + column, count, out);
  }
  if (!c.phase_weights)
    return load_floats(dtype, o.w,
                       channel_out * c.weight_row() + kernel_tap(c, phase, ty, tx) * std::int64_t{c.cin} + channel,
                       count, out);
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

}  // namespace noisefloor::convolution::host_gather
