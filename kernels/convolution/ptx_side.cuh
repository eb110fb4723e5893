// The second source of a convolution's sums, for the ptx kernels of sm_90a: its k-steps stand behind those of the taps,
// each of 64 channels of `side`, then of `side_skip`, so that their concatenation is never written. TMA fills a
// source's channels past its last with zeros, whatever finite weights stand there.
#pragma once

#include <cuda_runtime.h>

#include "kernels/convolution/schedule.h"
#include "kernels/device/tensor_map.h"
#include "kernels/ptx/tma.cuh"

namespace noisefloor::convolution {

// Not encoded, and not read, where a convolution has no such source.
struct SideMaps {
  CUtensorMap side, skip, w;

  __device__ __forceinline__ const CUtensorMap* of(const SideCoordinate& place) const {
    return place.skip ? &skip : &side;
  }
};

// Encodes them: map_pixels(map, data, channels) that of one tensor's pixels; boxes of weights have box_rows.
template <class MapPixels>
Status encode_side_maps(SideMaps& maps, const Convolution& c, DType dtype, const Operands& o, int box_rows,
                        const MapPixels& map_pixels) {
  if (c.side == 0) return success();
  if (const Status status = map_pixels(maps.side, o.side, c.side); !status.ok()) return status;
  if (c.side_skip > 0)
    if (const Status status = map_pixels(maps.skip, o.side_skip, c.side_skip); !status.ok()) return status;
  return encode_tensor_map(maps.w, {dtype, o.w_side, c.cout, c.side_channels(), box_rows, kBlockK});
}

__device__ __forceinline__ void prefetch(const SideMaps& maps, const Convolution& c) {
  if (c.side == 0) return;
  ptx::prefetch_tensor_map(&maps.side);
  if (c.side_skip > 0) ptx::prefetch_tensor_map(&maps.skip);
  ptx::prefetch_tensor_map(&maps.w);
}

}  // namespace noisefloor::convolution
