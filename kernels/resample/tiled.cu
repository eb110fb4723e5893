// resample, tiled: 16 bytes per thread, several of them in flight (kernels/device/stream.cuh). A vector of x is read
// once and written four times (nearest), or four are read and their mean is written; neighbouring threads are
// neighbouring channels, so that every access is coalesced.
//
// Better than naive: an eighth (fp32: a quarter) of the memory instructions, multiplications in place of 64-bit
// divisions, and nearest reads x once, not four times.
//
// Tile: 256 threads x 4 vectors (nearest and mean: 1, which is four accesses). Shared memory: none.
//
// Bound: memory traffic.
//
// Requires: pixels (of concat: both) of a multiple of 16 bytes; below 2^31 vectors.
// Numerics: the mean in fp32, one rounding at the end; all else moves bits.
// Source: original.
#include "kernels/resample/device.cuh"

namespace noisefloor::resample {

Status launch_tiled(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext& context) {
  return with_type(dtype, [&]<class T>(T) {
    switch (p.op) {
      case Operation::nearest_up2:
        if (p.scale != 1) return stream(ScaledUpMap<T>(p, t), context, "resample tiled scaled nearest_up2");
        return stream(up_map<T>(p, t), context, "resample tiled nearest_up2");
      case Operation::average_down2:
        if (p.scale != 1) return stream(ScaledDownMap<T>(p, t), context, "resample tiled scaled average_down2");
        return stream(down_map<T>(p, t), context, "resample tiled average_down2");
      case Operation::split:
        return stream(SplitMap(concat_map<T>(p, t), t), context, "resample tiled split");
      default:
        return stream(concat_map<T>(p, t), context, "resample tiled concat");
    }
  });
}

}  // namespace noisefloor::resample
