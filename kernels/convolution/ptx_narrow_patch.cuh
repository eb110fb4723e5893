// How ptx_sm80_narrow lays a tile's rows of the product out in shared memory. Device code only.
#pragma once

#include <cstdint>

#include "kernels/convolution/epilogue.cuh"
#include "kernels/device/divider.h"
#include "kernels/product/epilogue.cuh"
#include "kernels/ptx/cp_async.cuh"
#include "kernels/ptx/shared.cuh"

namespace noisefloor::convolution {

inline constexpr int kNarrowThreads = 128;

struct NarrowGrid {
  Divider phase_tiles_m, parts_n;
  int columns;  // of a part, in whole tiles
  PhasePixels pixels;
  Divider group;                // what lies under a tap: channels, or runs of 8 of them
  int terms, steps, row_bytes;  // of k
  int under_tap[kNarrowTaps];   // elements of x from tap 0 on
};

// A pixel's row of A: where tap 0 lies in x, which may be outside, and a bit per tap that lies inside of the image.
struct NarrowPatch {
  int corner;
  unsigned inside;

  __device__ __forceinline__ NarrowPatch(const Convolution& c, const NarrowGrid& grid, int phase, int row) {
    const int image = row / grid.pixels.pixels, at = row % grid.pixels.pixels;
    const int iy = at / grid.pixels.width * c.y.stride + c.y.origin + c.phase_y(phase) * c.y.phase_shift;
    const int ix = at % grid.pixels.width * c.x.stride + c.x.origin + c.phase_x(phase) * c.x.phase_shift;
    corner = ((image * c.y.in + iy) * c.x.in + ix) * c.cin;
    unsigned columns = 0;
    for (int tx = 0; tx < c.x.taps; ++tx)
      columns |= static_cast<unsigned>(static_cast<unsigned>(ix + tx) < static_cast<unsigned>(c.x.in)) << tx;
    inside = 0;
    for (int ty = 0; ty < c.y.taps; ++ty)
      if (static_cast<unsigned>(iy + ty) < static_cast<unsigned>(c.y.in)) inside |= columns << ty * c.x.taps;
    if (row >= c.phase_rows()) inside = 0;
  }
};

// One of kLanes threads that lay a patch out in shared memory at `to`, 8 terms a chunk, zeros behind them. Chunks do
// not depend on each other, nor terms of one: their loads are in flight together.
template <class T, bool kWhole, int kLanes>
__device__ __forceinline__ void lay_out_patch(std::uint32_t to, const T* __restrict__ x, const NarrowPatch& patch,
                                              const NarrowGrid& grid) {
  const int chunks = grid.steps * 2;
  const auto place = [&](int term, int tap, int within, bool& valid) {
    valid = term < grid.terms && (patch.inside >> tap & 1);
    return valid ? patch.corner + grid.under_tap[tap] + within : 0;
  };
#pragma unroll(kWhole ? 4 : 2)
  for (int chunk = static_cast<int>(threadIdx.x) % kLanes; chunk < chunks; chunk += kLanes) {
    bool valid;
    if constexpr (kWhole) {  // 8 channels of one tap
      const int tap = chunk / grid.group;
      const int from = place(chunk * 8, tap, (chunk - tap * grid.group) * 8, valid);
      ptx::cp_async_16_again(to + chunk * 16, x + from, valid);
    } else {
      product::Run<T, 8> run;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int term = chunk * 8 + i, tap = term / grid.group;
        const T value = x[place(term, tap, term - tap * grid.group, valid)];
        run.v[i] = valid ? value : T{};
      }
      ptx::store_shared(to + chunk * 16, *reinterpret_cast<const uint4*>(&run));
    }
  }
}

}  // namespace noisefloor::convolution
