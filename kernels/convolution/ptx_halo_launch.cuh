// How ptx_sm90a_halo is launched: its maps and arguments, of a schedule. Host code of the files of each dtype.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "kernels/convolution/ptx_halo.cuh"
#include "kernels/convolution/ptx_side.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/tensor_map.h"

namespace noisefloor::convolution {

// Where the pixels of a phase lie, in elements.
struct PhasePlace {
  std::int64_t first, pixel, row, image;  // the first, and from one to the next

  PhasePlace(const Convolution& c, int phase, const Operands&) {
    const std::int64_t line = std::int64_t{c.x.out_extent()} * c.cout;
    first = phase / c.x.phases * line + phase % c.x.phases * c.cout;
    pixel = std::int64_t{c.x.phases} * c.cout;
    row = c.y.phases * line;
    image = c.y.out_extent() * line;
  }
  PhasePlace(const Convolution& c, int, const GradientOperands& o) {
    const std::int64_t line = std::int64_t{o.width} * c.cout;
    first = o.first_y * line + std::int64_t{o.first_x} * c.cout;
    pixel = std::int64_t{o.step} * c.cout;
    row = o.step * line;
    image = o.height * line;
  }
  const void* in(const void* data, DType dtype) const {
    return static_cast<const std::uint8_t*>(data) + first * static_cast<std::int64_t>(size_of(dtype));
  }
};

// The phases' pixels of the output, or of a tensor like it, as boxes of a patch and kColumns channels.
template <int kColumns, class O>
Status encode_phases(PhaseMaps& maps, const Convolution& c, DType dtype, const O& o) {
  for (int phase = 0; phase < c.phases(); ++phase) {
    const PhasePlace place(c, phase, o);
    const StridedMap map{dtype,
                         place.in(o.y, dtype),
                         4,
                         {c.cout, c.x.out, c.y.out, c.images},
                         {place.pixel, place.row, place.image},
                         {kColumns, kPatch, kPatch, 1}};
    if (const Status status = encode_strided_map(maps.phase[phase], map); !status.ok()) return status;
  }
  return success();
}

// The residual's pixels, one axis for the rows of all images. Where it has half the output's height and width, each
// pixel is read twice along either axis: by axes of two with a stride of 0. Rows below an image are the next one's, and
// not stored.
template <int kColumns, class O>
Status encode_residual(PhaseMaps& maps, const Convolution& c, DType dtype, const O& o) {
  const int times = c.residual_upsample ? 2 : 1;
  for (int phase = 0; phase < c.phases(); ++phase) {
    const PhasePlace place(c, phase, o);
    const StridedMap map{dtype,
                         place.in(o.residual, dtype),
                         5,
                         {c.cout, times, c.x.out / times, times, std::int64_t{c.images} * c.y.out / times},
                         {0, place.pixel, 0, place.row / times},
                         {kColumns, times, kPatch / times, times, kPatch / times}};
    if (const Status status = encode_strided_map(maps.phase[phase], map); !status.ok()) return status;
  }
  return success();
}

template <class T, int kTile, bool kFused, class Op = Outputs>
Status launch_halo_tile(const Convolution& c, DType dtype, const typename Op::Operands& o, const Schedule& schedule,
                        const LaunchContext& context) {
  using L = HaloLayout<kTile, kFused>;
  const HaloTiling tiling = tiling_of(c, schedule);
  const Halo& halo = tiling.halo;
  const Rings rings = rings_with(schedule.stages, c.y.taps * c.x.taps, c.side > 0);
  const int halo_bytes = padded_halo(halo.lines());
  const int dsmem_stages = halo_dsmem_stages(L::kShape, schedule.splits);
  if (schedule.splits > 1 && dsmem_stages > schedule.stages)
    return failure(StatusCode::invalid_argument, "convolution: partial sums need more stages than this schedule has");
  const int k_steps = tap_steps(c) + side_steps(c);
  const int region = rings.bytes(halo_bytes, L::kShape.block_n);
  const int bytes = region + outside_rings(L::kShape.consumers, L::kShape.block_n, schedule.splits > 1);
  const std::int64_t row = std::int64_t{c.x.in} * c.cin;
  CUtensorMap map_x;
  CUtensorMap map_w;
  const StridedMap images{dtype,
                          o.x,
                          4,
                          {c.cin, c.x.in, c.y.in, c.images},
                          {c.cin, row, row * c.y.in},
                          {kBlockK, halo.width, halo.height, halo.images}};
  if (const Status status = encode_strided_map(map_x, images); !status.ok()) return status;
  const MatrixMap weights = weights_map<Op>(c, dtype, o, L::kShape.block_n, schedule.multicast);
  if (const Status status = encode_tensor_map(map_w, weights); !status.ok()) return status;
  if (!stores_by_tma(c) && L::kShape.block_n != kNarrowHalo)
    return failure(StatusCode::invalid_argument, "convolution: this tile needs cout to be a multiple of 8");
  PhaseMaps maps_y{};  // with no bytes that nobody set: see launch_kernel
  if (stores_by_tma(c)) {
    if (const Status status = encode_phases<L::kPieceColumns>(maps_y, c, dtype, o); !status.ok()) return status;
  } else {
    std::fill(std::begin(maps_y.phase), std::end(maps_y.phase), map_x);  // prefetched, and not used
  }
  PhaseMaps maps_residual = maps_y;
  if (c.residual)
    if (const Status status = encode_residual<L::kPieceColumns>(maps_residual, c, dtype, o); !status.ok())
      return status;
  SideMaps maps_side{};
  const auto pixels = [&](CUtensorMap& map, const void* data, int channels) {
    const Halo box = tiling.side_box();
    const std::int64_t line = std::int64_t{c.x.out} * channels;
    return encode_strided_map(map, {dtype,
                                    data,
                                    4,
                                    {channels, c.x.out, c.y.out, c.images},
                                    {channels, line, line * c.y.out},
                                    {kBlockK, box.width, box.height, box.images}});
  };
  const Status sides =
      encode_side_maps(maps_side, c, dtype, o, product::b_box_rows(L::kShape.block_n, schedule.multicast), pixels);
  if (!sides.ok()) return sides;
  const HaloArguments<T, Op> arguments{{c, Epilogue<T, Op>(c, o), o.mean, o.m2},
                                       tiling,
                                       {schedule.m_clusters, schedule.n_tiles},
                                       tap_steps(c),
                                       k_steps,
                                       rings.halos,
                                       halo_bytes,
                                       c.norm == Norm::none ? nullptr : o.norm,
                                       region,
                                       schedule.stages,
                                       product::early_stages(context, schedule.stages),
                                       schedule.multicast,
                                       halo_dsmem(c, schedule),
                                       schedule.splits};
  const LaunchShape shape{.grid = static_cast<unsigned>(schedule.grid),
                          .block = L::kThreads,
                          .shared_bytes = static_cast<std::size_t>(bytes),
                          .shared_limit = static_cast<std::size_t>(shared_budget(1)),
                          .cluster = static_cast<unsigned>(schedule.cluster()),
                          .programmatic = context.programmatic_launch};
  return launch_kernel("convolution_ptx_sm90a_halo", convolution_ptx_sm90a_halo<T, kTile, kFused, Op>, shape,
                       context.stream, map_x, map_w, maps_y, maps_residual, maps_side, arguments);
}

}  // namespace noisefloor::convolution
