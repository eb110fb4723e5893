// resample for sm_90a: blocks fed by the bulk copy engine (kernels/device/bulk_pipeline.cuh). A tile of nearest is 512
// vectors of x, written four times, of split as many; of concat, whole pixels, up to 512 vectors of y, or one pixel.
//
// Better than naive: whole vectors of 16 bytes, no 64-bit division, and nearest reads x once, not four times. What
// differs from tiled, which stands above: the loads in flight live in shared memory and do not depend on occupancy, a
// block lives for several tiles, and places are found by 32-bit arithmetic within a tile. Honours programmatic
// dependent launch.
//
// Requires: as tiled, and no mean, whose four runs of x were slower this way (docs/experiments/elementwise); pixels of
// concat of at most 96 KiB (two stages of one pixel fit a block).
// Bound: memory traffic.
// Numerics: moves bits; scales in fp32, with one rounding.
// Source: original; PTX ISA, "cp.async.bulk".
#include "kernels/device/bulk_pipeline.cuh"
#include "kernels/resample/device.cuh"

namespace noisefloor::resample {
namespace {

struct ConcatWork {
  static constexpr std::uint32_t kTileVectors = 512;
  ConcatMap map;
  std::uint32_t tiles, stage_bytes, pixels, all_pixels, first_bytes, skip_bytes;

  explicit ConcatWork(const ConcatMap& the_map) : map(the_map) {
    const std::uint32_t pixel = map.shape.pixel.divisor();
    pixels = std::max(1u, kTileVectors / pixel);
    all_pixels = map.vectors / pixel;
    first_bytes = (pixel - map.shape.skip) * 16;
    skip_bytes = map.shape.skip * 16;
    tiles = (all_pixels + pixels - 1) / pixels;
    stage_bytes = (pixels * pixel * 16 + 127) / 128 * 128;
  }
  __device__ __forceinline__ void fetch(std::uint32_t tile, std::uint32_t stage, std::uint32_t barrier) const {
    const std::uint32_t first = tile * pixels, count = min(pixels, all_pixels - first);
    ptx::mbarrier_arrive_expect_tx(barrier, count * (first_bytes + skip_bytes));
    const auto* x = reinterpret_cast<const char*>(map.x) + static_cast<std::int64_t>(first) * first_bytes;
    const auto* skip = reinterpret_cast<const char*>(map.skip) + static_cast<std::int64_t>(first) * skip_bytes;
    ptx::bulk_load(stage, x, count * first_bytes, barrier);
    ptx::bulk_load(stage + pixels * first_bytes, skip, count * skip_bytes, barrier);
  }
  template <class Wait>
  __device__ __forceinline__ void consume(std::uint32_t tile, const Wait& wait) const {
    const std::uint32_t stage = wait();
    const std::uint32_t pixel = map.shape.pixel.divisor(), first = tile * pixels * pixel;
    for (std::uint32_t i = threadIdx.x; i < pixels * pixel && first + i < map.vectors; i += kBulkConsumers) {
      const std::uint32_t at = i / map.shape.pixel, place = (i - at * pixel) * 16;
      const std::uint32_t from =
          place < first_bytes ? at * first_bytes + place : pixels * first_bytes + at * skip_bytes + place - first_bytes;
      const uint4 bits[1] = {ptx::load_shared_16(stage + from)};
      map.apply(first + i, bits);
    }
  }
};

}  // namespace

Status launch_ptx_sm90a(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext& context) {
  return with_type(dtype, [&]<class T>(T) {
    switch (p.op) {
      case Operation::nearest_up2:
        if (p.scale != 1) return launch_bulk(FlatWork(ScaledUpMap<T>(p, t)), context);
        return launch_bulk(FlatWork(up_map<T>(p, t)), context);
      case Operation::concat:
        return launch_bulk(ConcatWork(concat_map<T>(p, t)), context);
      case Operation::split:
        return launch_bulk(FlatWork(SplitMap(concat_map<T>(p, t), t)), context);
      default:
        return failure(StatusCode::unsupported_problem, "resample ptx_sm90a: average_down2");
    }
  });
}

}  // namespace noisefloor::resample
