// resample for sm_90a: blocks fed by the bulk copy engine (kernels/device/bulk_pipeline.cuh). A tile of nearest is 512
// vectors of x, written four times; of the mean, up to 256 vectors of a row of y, made of contiguous runs of x; of
// concat, whole pixels, up to 512 vectors of y, or one pixel.
//
// Better than naive and tensor_core_sm80: whole vectors of 16 bytes, no 64-bit division, nearest reads x once, not four
// times, and a mean takes no product. What differs from tiled, which stands above: the loads in flight live in shared
// memory and do not depend on occupancy, a block lives for several tiles, and places are found by 32-bit arithmetic
// within a tile. Honours programmatic dependent launch.
//
// Requires: as tiled; pixels of concat of at most 96 KiB (two stages of one pixel fit a block).
// Bound: memory traffic.
// Numerics: the mean in fp32, one rounding at the end; all else moves bits.
// Source: original; PTX ISA, "cp.async.bulk".
#include "kernels/device/bulk_pipeline.cuh"
#include "kernels/resample/device.cuh"

namespace noisefloor::resample {
namespace {

// The mean. A tile is `pixels` whole pixels of one row of y, or one of `pieces` of a pixel: `run` vectors of each.
template <class T>
struct DownWork {
  static constexpr std::uint32_t kTileVectors = 256;
  DownMap<T> map;
  std::uint32_t tiles, stage_bytes, pixels, run;
  Divider per_row, pieces, per_run;  // tiles of a row (or of a pixel)

  DownWork(const DownMap<T>& the_map, std::uint32_t rows) : map(the_map) {
    const std::uint32_t pixel = map.shape.pixel.divisor(), width = map.shape.width.divisor();
    pixels = std::clamp(kTileVectors / pixel, 1u, width);
    run = std::min(pixel, kTileVectors);
    pieces = Divider((pixel + kTileVectors - 1) / kTileVectors);
    per_row = Divider((width + pixels - 1) / pixels);
    per_run = Divider(run);
    tiles = rows * per_row.divisor() * pieces.divisor();
    stage_bytes = (4 * pixels * run * 16 + 127) / 128 * 128;
  }
  struct Place {
    std::uint32_t first;  // vector of y
    std::uint32_t pixels, run;
  };
  __device__ __forceinline__ Place place(std::uint32_t tile) const {
    const std::uint32_t pixel = map.shape.pixel.divisor(), width = map.shape.width.divisor();
    const std::uint32_t group = tile / pieces, piece = tile - group * pieces.divisor();
    const std::uint32_t row = group / per_row, column = (group - row * per_row.divisor()) * pixels;
    return {(row * width + column) * pixel + piece * run, min(pixels, width - column), min(run, pixel - piece * run)};
  }
  // In the stage: the runs of the upper row's pixels, even and odd by turns, then those of the lower one's.
  __device__ __forceinline__ void fetch(std::uint32_t tile, std::uint32_t stage, std::uint32_t barrier) const {
    const Place at = place(tile);
    const std::uint32_t bytes = at.run * 16;
    ptx::mbarrier_arrive_expect_tx(barrier, 4 * at.pixels * bytes);
    for (int row = 0; row < 2; ++row) {
      const std::uint32_t to = stage + row * 2 * pixels * run * 16;
      if (pieces.divisor() == 1) {
        ptx::bulk_load(to, map.at(2 * row, at.first), 2 * at.pixels * bytes, barrier);
      } else {
        ptx::bulk_load(to, map.at(2 * row, at.first), bytes, barrier);
        ptx::bulk_load(to + run * 16, map.at(2 * row + 1, at.first), bytes, barrier);
      }
    }
  }
  template <class Wait>
  __device__ __forceinline__ void consume(std::uint32_t tile, const Wait& wait) const {
    const Place at = place(tile);
    const std::uint32_t stage = wait();
    for (std::uint32_t i = threadIdx.x; i < at.pixels * run; i += kBulkConsumers) {
      const std::uint32_t pixel = i / per_run, within = i - pixel * run;
      if (within >= at.run) continue;
      const std::uint32_t corner = stage + (i + pixel * run) * 16;
      const std::uint32_t lower = corner + 2 * pixels * run * 16;
      const uint4 bits[4] = {ptx::load_shared_16(corner), ptx::load_shared_16(corner + run * 16),
                             ptx::load_shared_16(lower), ptx::load_shared_16(lower + run * 16)};
      map.apply(at.first + i, bits);
    }
  }
};

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
        return launch_bulk(FlatWork(up_map<T>(p, t)), context);
      case Operation::average_down2:
        return launch_bulk(DownWork<T>(down_map<T>(p, t), static_cast<std::uint32_t>(p.n * p.out_h())), context);
      default:
        return launch_bulk(ConcatWork(concat_map<T>(p, t)), context);
    }
  });
}

}  // namespace noisefloor::resample
