// dgrad on the host: the tiles of convolutions (host_tile.h), of dy, phase by phase.
//
// Each launch packs the weights, which a training step has just changed. A panel's row is kMicroN input channels of one
// output channel and tap, which lie side by side as they are stored; taps that meet behind an upsample are summed.
//
// Bound: FMA throughput. Requires: nothing. Numerics: fp32 sums per block of k, added in order.
#include <algorithm>

#include "kernels/convolution/gradient.h"
#include "kernels/convolution/host_tile.h"

namespace noisefloor::convolution {
namespace {

using namespace host_tile;

struct DgradPhase {
  int y, x;            // of the pixels
  Convolution sums;    // of dy
  std::int64_t first;  // of its packed weights, in floats
};

// Calls body(phase) on each; returns the floats of all packed weights.
template <class Body>
std::int64_t each_phase(const Convolution& forward, const Body& body) {
  std::int64_t first = 0;
  for (int y = 0; y < gradient_phases(forward.y); ++y)
    for (int x = 0; x < gradient_phases(forward.x); ++x) {
      const Convolution sums = gradient_of(forward, y, x);
      body(DgradPhase{y, x, sums, first});
      first += static_cast<std::int64_t>(packed_weight_bytes(sums) / sizeof(float));
    }
  return first;
}

// Of `count` input channels from `ci` on, for tap (ty, tx) of dgrad and output channel `co`, onto `out`.
void add_weights(const Convolution& forward, const Convolution& sums, DType dtype, const void* w, int ty, int tx,
                 std::int64_t co, std::int64_t ci, std::int64_t count, float* out) {
  const TapRange ys = gradient_taps(forward.y, sums.y, ty), xs = gradient_taps(forward.x, sums.x, tx);
  for (int ky = ys.first; ky <= ys.last; ++ky)
    for (int kx = xs.first; kx <= xs.last; ++kx) {
      float row[kMicroN];
      load_floats(dtype, w, co * forward.weight_row() + (ky * forward.x.taps + kx) * std::int64_t{forward.cin} + ci,
                  count, row);
      for (std::int64_t i = 0; i < count; ++i) out[i] += row[i];
    }
}

void pack_phase(const Convolution& forward, DType dtype, const void* w, const DgradPhase& phase, float* packed) {
  const Convolution& c = phase.sums;
  parallel_for(packed_columns(c) / kMicroN, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t panel = begin; panel < end; ++panel)
      for (std::int64_t k = 0; k < c.k(); ++k) {
        float* const out = packed + phase.first + packed_place(c, 0, panel, k);
        const auto tap = static_cast<int>(k / c.cin);
        std::fill_n(out, kMicroN, 0.0f);
        add_weights(forward, c, dtype, w, tap / c.x.taps, tap % c.x.taps, k % c.cin, panel * kMicroN,
                    std::min<std::int64_t>(kMicroN, c.cout - panel * kMicroN), out);
      }
  });
}

void store_row(DType dtype, const Dgrad& t, const DgradFactors& factors, std::int64_t first, std::int64_t count,
               float* v) {
  if (factors.scale != 1)
    for (std::int64_t i = 0; i < count; ++i) v[i] *= factors.scale;
  if (t.residual != nullptr) {
    float residual[kTileN];
    load_floats(dtype, t.residual, first, count, residual);
    for (std::int64_t i = 0; i < count; ++i) v[i] += factors.residual_scale * residual[i];
  }
  store_floats(dtype, t.dx, first, count, v);
}

}  // namespace

std::size_t dgrad_host_workspace_bytes(const Convolution& forward, DType, const DeviceInfo&) {
  return static_cast<std::size_t>(each_phase(forward, [](const DgradPhase&) {})) * sizeof(float);
}

Status launch_dgrad_host(const Convolution& forward, DType dtype, const Dgrad& t, const DgradFactors& factors,
                         void* workspace, const LaunchContext& context) {
  auto* const packed = static_cast<float*>(workspace);
  Operands operands;
  operands.x = t.dy;
  each_phase(forward, [&](const DgradPhase& phase) {
    const Convolution& c = phase.sums;
    pack_phase(forward, dtype, t.w, phase, packed);
    each_tile(c, context, [&](const Tile& tile) {
      make_tile(c, dtype, operands, packed + phase.first, tile, [&](const Row* rows, float* sums) {
        for (std::int64_t i = 0; i < tile.rows; ++i) {
          const Pixel at{rows[i].image, rows[i].y, rows[i].x};
          const std::int64_t pixel = gradient_pixel(forward, phase.y, phase.x, at);
          store_row(dtype, t, factors, pixel * c.cout + tile.column0, tile.columns, sums + i * kTileN);
        }
      });
    });
  });
  return success();
}

}  // namespace noisefloor::convolution
