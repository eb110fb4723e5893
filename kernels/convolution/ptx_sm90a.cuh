// Convolutions with Hopper's own instructions: the structure of gemm's ptx_sm90a, with TMA's im2col mode as the gather.
// A producer warp walks the taps, then 64 input channels at a time: the pixels of a tile under one tap are one load,
// which writes zeros outside of the image, whatever stride and padding; the weights are a plain 2D load. An upsample by
// 2 and a transposed convolution run as four phases, one after the other, each with its taps and its scattered output
// pixels. A second source follows the taps: its pixels are the tile's rows, a plain 2D load (ptx_side.cuh). Statistics
// are a second launch. A gradient's weights are n-major. schedule.cpp picks tile, ping-pong, multicast and split.
//
// Better than tensor_core_sm80: wgmma has twice the rate of mma.sync there, operands never pass through registers, and
// no thread waits for a load, computes an address or tests a border.
//
// Requires: bf16 or fp16; 16-byte aligned tensors; at most 128 taps of padding. Input channels that are not a multiple
// of 8 are gathered into rows of the product by a kernel before (ptx_sm90a.cu). Honours programmatic dependent launch.
// Bound: products at 32x64x64x192 -> 192. At batch 1: the latency of the first loads, and partly filled waves.
// Numerics: fp32 accumulation in wgmma; partial sums added in block order; fp32 epilogue, one rounding.
// Source: PTX ISA, "wgmma", "cp.async.bulk.tensor", "mbarrier", "setmaxnreg".
#pragma once

#include <cuda_runtime.h>

#include <type_traits>

#include "kernels/convolution/ptx_side.cuh"
#include "kernels/convolution/ptx_sm90a_epilogue.cuh"
#include "kernels/convolution/ptx_sm90a_layout.cuh"
#include "kernels/convolution/ptx_sm90a_partials.cuh"
#include "kernels/convolution/schedule.h"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/tensor_map.h"
#include "kernels/product/sm90a_consumer.cuh"
#include "kernels/product/sm90a_loads.cuh"
#include "kernels/product/sm90a_mainloop.cuh"
#include "kernels/ptx/elect.cuh"
#include "kernels/ptx/setmaxnreg.cuh"
#include "kernels/ptx/tma.cuh"

namespace noisefloor::convolution {

// Where a block's part of k begins: a tap and 64 channels of it.
struct Step {
  int ty, tx, part;

  __device__ __forceinline__ Step(const Convolution& c, int cin_steps, int first) : ty(0), tx(0), part(0) {
    if (first == 0) return;  // divisions are long
    ty = first / cin_steps / c.x.taps;
    tx = first / cin_steps % c.x.taps;
    part = first % cin_steps;
  }
  __device__ __forceinline__ void advance(const Convolution& c, int cin_steps) {
    if (++part < cin_steps) return;
    part = 0;
    if (++tx < c.x.taps) return;
    tx = 0;
    ++ty;
  }
};

// What the producer loads for a tile: rows from row0 on of a phase, which begin at pixel (h, w) of an image.
struct TilePixels {
  int phase, row0, column0, image, h, w;
};

// The residual of a warpgroup's rows, loaded 16 bytes a lane and exchanged within quads of lanes.
template <int kColumns, class T, class Op>
struct RowsResidual {
  const EpilogueStore<T, RowRun, Op>& of;
  int pixel[2];  // of this thread's rows

  __device__ __forceinline__ explicit RowsResidual(const EpilogueStore<T, RowRun, Op>& store) : of(store) {
    const int row = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
    pixel[0] = of.pixel(row), pixel[1] = of.pixel(row + 8);
  }
  template <int kBlocks, class Row>
  __device__ __forceinline__ void load(const Row&, int piece, int block, std::uint32_t (&words)[2][4]) const {
    static_assert(kBlocks == 4, "a quad of lanes exchanges four blocks");
    const Epilogue<T, Op>& epilogue = of.args.epilogue;
    if (!epilogue.residual) return;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int column = of.column0 + piece * kColumns + 8 * (block + lane % 4);
    uint4 loaded[2] = {};  // both before either is waited for
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane / 4 + 8 * half;
      if (column < epilogue.columns && of.place.has(row))
        loaded[half] =
            load_8(epilogue.residual + std::int64_t{pixel[half]} * epilogue.columns, column, epilogue.columns);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      words[half][0] = loaded[half].x, words[half][1] = loaded[half].y;
      words[half][2] = loaded[half].z, words[half][3] = loaded[half].w;
      product::transpose_quad(words[half], lane);
    }
  }
};

template <class T, int kTile, class Op = Outputs>
__global__ void __launch_bounds__(Layout<kTile>::kThreads, kTiles[kTile].blocks_per_sm)
    convolution_ptx_sm90a(const __grid_constant__ CUtensorMap map_x, const __grid_constant__ CUtensorMap map_w,
                          const __grid_constant__ CUtensorMap map_y, const __grid_constant__ SideMaps maps_side,
                          const __grid_constant__ Arguments<T, Op> args) {
  using L = Layout<kTile>;
  constexpr Tile kShape = L::kShape;
  constexpr int kBlockM = kShape.block_m();
  constexpr int kBlockN = kShape.block_n;
  constexpr int kHalf = kBlockN / 2;
  constexpr bool kPingpong = kShape.pingpong;
  extern __shared__ std::uint8_t raw[];
  const std::uint32_t base = (ptx::shared_address(raw) + kSwizzleAtom - 1) / kSwizzleAtom * kSwizzleAtom;
  std::uint8_t* const aligned = raw + (base - ptx::shared_address(raw));
  const int consumer_offset = args.stages * L::kStageBytes;
  const Barriers barriers(base + consumer_offset + kShape.consumers * L::kConsumerBytes, args.stages);
  const WarpRole<kShape.consumers> role(args.multicast, args.splits);
  const Convolution& c = args.c;

  const auto [first_step, steps] = product::StepRange(args.k_steps, role.split, args.splits);
  const int tiles = args.order.tiles();
  const int first_tile = role.first_tile();
  const int tile_stride = role.tile_stride();
  const auto pixels_of = [&](int tile) {
    const TileCoordinate at = tile_coordinate(args, tile, role.m_rank, kBlockM, kBlockN);
    const int image = at.row0 / args.pixels, pixel = at.row0 - image * args.pixels;
    const int line = pixel / args.row;
    return TilePixels{at.phase,
                      at.row0,
                      at.column0,
                      image,
                      line * c.y.stride + c.y.origin,
                      (pixel - line * args.row) * c.x.stride + c.x.origin};
  };
  TilePixels pixels;
  if (role.producer) {
    if (role.first_of_producer) {
      ptx::prefetch_tensor_map(&map_x);
      ptx::prefetch_tensor_map(&map_w);
      prefetch(maps_side, c);
    }
    pixels = pixels_of(first_tile);
    product::pin(pixels.phase, pixels.row0, pixels.column0, pixels.image, pixels.h, pixels.w);
  } else {
    barriers.init<kPingpong ? 1 : kShape.consumers>(
        role, args.stages, (args.splits - 1) * share_blocks(kBlockN, args.splits, role.split) * kBlockM * 32);
  }
  product::meet(role);

  ptx::Ring ring;

  if (role.producer) {
    if constexpr (L::kMoveRegisters) ptx::setmaxnreg_dec<L::kProducerRegisters>();
    if (role.tma_warp) {
      const int of_taps = max(min(args.tap_steps - first_step, steps), 0);
      for (int tile = first_tile; tile < tiles; tile += tile_stride) {
        if (tile != first_tile) pixels = pixels_of(tile);
        const int row_w = (c.phase_weights ? pixels.phase * c.cout : 0) + pixels.column0;
        const int shift_y = c.phase_y(pixels.phase) * c.y.phase_shift;
        const int shift_x = c.phase_x(pixels.phase) * c.x.phase_shift;
        const KernelTaps taps(c, pixels.phase);
        Step step(c, args.cin_steps, first_step);
        const int early = tile == first_tile ? min(args.early, of_taps) : 0;
        if (tile == first_tile) {
          Step ahead = step;
          product::load_early(
              barriers, early, L::kStageBytes,
              [&](int i, std::uint32_t barrier) {
                product::load_b<kHalf, true, kWeightBox<Op>>(
                    role, &map_w, base + i * L::kStageBytes + L::kABytes, barrier,
                    weight_k<Op>(c, taps.at(ahead.ty, ahead.tx), ahead.part * kBlockK),
                    weight_row<Op>(c, taps.at(ahead.ty, ahead.tx), row_w));
              },
              [&] { ahead.advance(c, args.cin_steps); });
          product::wait_for_launches();
        }
        const auto load_taps = [&](auto shares) {
#pragma unroll 1
          for (int i = 0; i < of_taps; ++i, ring.advance(args.stages), step.advance(c, args.cin_steps)) {
            const std::uint32_t a = base + ring.stage * L::kStageBytes;
            const std::uint32_t barrier = barriers.full + ring.stage * 8;
            const int channel = step.part * kBlockK;
            const int column = weight_k<Op>(c, taps.at(step.ty, step.tx), channel);
            const int row = weight_row<Op>(c, taps.at(step.ty, step.tx), row_w);
            ptx::mbarrier_wait(barriers.empty + ring.stage * 8, ring.parity ^ 1);
            if (ptx::elect_one()) {
              if (i >= early) ptx::mbarrier_arrive_expect_tx(barrier, L::kStageBytes);
              ptx::tma_load_im2col(a, &map_x, barrier, channel, pixels.w, pixels.h, pixels.image,
                                   static_cast<std::uint16_t>(step.tx + shift_x),
                                   static_cast<std::uint16_t>(step.ty + shift_y));
              if (i >= early)
                product::load_b<kHalf, shares, kWeightBox<Op>>(role, &map_w, a + L::kABytes, barrier, column, row);
            }
          }
        };
        product::with_sharing(role, load_taps);
#pragma unroll 1
        for (int i = of_taps; i < steps; ++i, ring.advance(args.stages)) {
          const SideCoordinate from = side_coordinate(c, first_step + i - args.tap_steps);
          const std::uint32_t a = base + ring.stage * L::kStageBytes;
          const std::uint32_t barrier = barriers.full + ring.stage * 8;
          ptx::mbarrier_wait(barriers.empty + ring.stage * 8, ring.parity ^ 1);
          if (ptx::elect_one()) {
            ptx::mbarrier_arrive_expect_tx(barrier, L::kStageBytes);
            ptx::tma_load_2d(a, maps_side.of(from), barrier, from.channel, pixels.row0);
            product::load_b<kHalf, true>(role, &maps_side.w, a + L::kABytes, barrier, from.column, row_w);
          }
        }
      }
      product::let_next_launch_start();
      product::await_stages(role, barriers, ring, args.stages);
    }
    product::leave_producer(role, barriers, args.stages, steps);
  } else {
    if constexpr (L::kMoveRegisters) ptx::setmaxnreg_inc<L::kConsumerRegisters>();
    product::wait_for_launches();
    std::uint8_t* const stores = aligned + consumer_offset;
    auto* const mul =
        reinterpret_cast<float*>(stores + kShape.consumers * L::kStoreBytes) + role.consumer * 2 * kBlockN;
    ptx::Ring buffer;
    // Over the steps of a tile that is not this consumer's.
    const auto skip_tile = [&] { ring.skip(steps, args.stages); };
    if (kPingpong && role.consumer == 1) skip_tile();
    Addressees addressees;
    if (L::kCanSplit && args.splits > 1)
      addressees.find<kBlockN, kBlockM>(role, barriers, args.splits, base + args.dsmem.stage * L::kStageBytes);
    for (int tile = first_tile + (kPingpong ? role.consumer * tile_stride : 0); tile < tiles;
         tile += (kPingpong ? 2 : 1) * tile_stride) {
      const TileCoordinate at = tile_coordinate(args, tile, role.m_rank, kBlockM, kBlockN);
      const int row0 = at.row0 + (kPingpong ? 0 : role.consumer * 64);
      const int rows = min(args.phase_rows - row0, L::kSubtiles * 64);
      EpilogueStore<T, RowRun, Op> drain{args,
                                         {at.phase, row0, min(rows, 64)},
                                         at.column0,
                                         1 + role.consumer,
                                         stores + role.consumer * L::kStoreBytes,
                                         mul,
                                         mul + kBlockN,
                                         {nullptr, nullptr}};
      // A shift per image is the warpgroup's own where its pixels belong to one image, else looked up per row.
      const T* image_shift = nullptr;
      bool by_row = false;
      if (args.epilogue.image_shift && rows > 0) {
        const int pixels = c.y.out * c.x.out;
        const int image = row0 / pixels;
        by_row = image != (row0 + rows - 1) / pixels;
        if (!by_row) image_shift = args.epilogue.image_shift + std::int64_t{image} * c.cout;
      }
      if (by_row) drain.look_up_shifts();
      const ChannelPair<kBlockN> channels(args, at.column0, image_shift);

      float acc[L::kSubtiles][kBlockN / 2];
      product::multiply_tile<T, kBlockN, L::kStageBytes, L::kABytes, kPingpong, product::Majors{.b = kIsGradient<Op>}>(
          role, barriers, base, ring, args.stages, steps, L::kCanSplit ? args.dsmem.opens : -1, tile == first_tile,
          tile + tile_stride >= tiles, acc);
      if constexpr (kPingpong) skip_tile();

      if (!args.by_tma) drain.sync();  // all have read what belongs to the channels of the tile before
      channels.write(drain.mul, drain.add);
      if (args.splits > 1) {
        if constexpr (L::kCanSplit) {
          product::await_dsmem(args.dsmem.opens, steps);
          send_partial<kBlockN>(acc[0], addressees);
          const auto* dsmem = reinterpret_cast<const float*>(aligned + args.dsmem.stage * L::kStageBytes);
          store_partials<T, kBlockM, false>(drain, dsmem, args.splits, role.split, kBlockN, role.consumer,
                                            [&] { product::await_sums(barriers); });
        }
      } else {
#pragma unroll 1
        for (int sub = 0; sub < L::kSubtiles; ++sub) {
          constexpr Finish kFinish =
              kIsGradient<Op> ? Finish{.weighs = true} : Finish{.act = true, .shift = true, .gain = true};
          store_accumulator<kFinish, kBlockN, L::kBuffers, L::kPieceColumns, 4, 1, false>(
              drain, &map_y, args.by_tma, acc[0], RowsResidual<L::kPieceColumns, T, Op>(drain), buffer);
          if constexpr (kPingpong) {
            drain.place.row0 += 64;
            drain.place.rows = min(rows - 64, 64);
            if (by_row) drain.look_up_shifts();
#pragma unroll
            for (int i = 0; i < kBlockN / 2; ++i) acc[0][i] = acc[1][i];
          }
        }
      }
    }
    if (role.warp % 4 == 0 && ptx::elect_one()) ptx::tma_store_wait_read<0>();
  }
}

template <class T, int kTile, class Op = Outputs>
Status launch_tile(const Convolution& c, DType dtype, const typename Op::Operands& o, const Schedule& schedule,
                   const LaunchContext& context) {
  using L = Layout<kTile>;
  if (schedule.splits > 1 && L::dsmem_stages(schedule.splits) > schedule.stages)
    return failure(StatusCode::invalid_argument, "convolution: partial sums need more stages than this schedule has");
  CUtensorMap map_x;
  CUtensorMap map_w;
  const ImageMap images{dtype,      o.x,     c.images, c.y.in,     c.x.in,     c.cin,   c.y.origin,
                        c.x.origin, c.y.out, c.x.out,  c.y.stride, c.x.stride, kBlockK, L::kShape.block_m()};
  if (const Status status = encode_im2col_map(map_x, images); !status.ok()) return status;
  const MatrixMap weights = weights_map<Op>(c, dtype, o, L::kShape.block_n, schedule.multicast);
  if (const Status status = encode_tensor_map(map_w, weights); !status.ok()) return status;
  const bool by_tma = stores_by_tma(c) && c.phases() == 1;
  CUtensorMap map_y = map_w;  // not used without by_tma
  if (by_tma)
    if (const Status status = encode_tensor_map(map_y, {dtype, o.y, c.rows(), c.cout, 64, L::kPieceColumns});
        !status.ok())
      return status;
  SideMaps maps_side{};
  const auto rows = [&](CUtensorMap& map, const void* data, int channels) {
    return encode_tensor_map(map, {dtype, data, c.rows(), channels, L::kShape.block_m(), kBlockK});
  };
  const Status sides =
      encode_side_maps(maps_side, c, dtype, o, product::b_box_rows(L::kShape.block_n, schedule.multicast), rows);
  if (!sides.ok()) return sides;
  const product::Sm90aProduct product = cut(c);
  const Arguments<T, Op> arguments{{c, Epilogue<T, Op>(c, o), o.mean, o.m2},
                                   static_cast<int>(c.phase_rows()),
                                   static_cast<int>(schedule.unit_clusters),
                                   c.y.out * c.x.out,
                                   c.x.out,
                                   {schedule.m_clusters, schedule.n_tiles},
                                   steps_of(c.cin),
                                   tap_steps(c),
                                   static_cast<int>(product.k_steps),
                                   schedule.stages,
                                   product::early_stages(context, schedule.stages),
                                   schedule.multicast,
                                   by_tma,
                                   product::dsmem_of(schedule, product.k_steps, L::dsmem_stages(schedule.splits)),
                                   schedule.splits};

  const LaunchShape shape{.grid = static_cast<unsigned>(schedule.grid),
                          .block = L::kThreads,
                          .shared_bytes = static_cast<std::size_t>(L::bytes(schedule.stages_of_room(L::kShape))),
                          .shared_limit = static_cast<std::size_t>(L::bytes(L::kShape.deep_stages)),
                          .cluster = static_cast<unsigned>(schedule.cluster()),
                          .programmatic = context.programmatic_launch};
  return launch_kernel("convolution_ptx_sm90a", convolution_ptx_sm90a<T, kTile, Op>, shape, context.stream, map_x,
                       map_w, map_y, maps_side, arguments);
}

// All tiles of the kernel for T, in a file of their own per type, so that they compile side by side.
template <class T>
Status launch_ptx(const Convolution& c, DType dtype, const Operands& o, const Schedule& schedule,
                  const LaunchContext& context);

}  // namespace noisefloor::convolution
