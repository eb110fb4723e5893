// Convolutions whose taps share one load: the structure of ptx_sm90a, but a tile is one or two patches of 8 x 8 output
// pixels, and 64 channels of their pixels and neighbours (the halo) are loaded once by plain tiled TMA, which writes
// zeros outside of the image. wgmma reads each tap's 64 rows out of that halo: its descriptor starts at the tap's first
// pixel and strides by a row of the halo from one group of 8 pixels to the next. The weights stream as they do there.
// A second source's k-steps follow: each takes a halo's stage for the tile's own pixels, and is one product (halo.h).
// halo.cpp picks arrangement, tile, multicast and split. Of a gradient (GradientOutputs) the weights are n-major.
//
// Better than ptx_sm90a where L2 limits it: of 3x3 taps a tile of 16 x 8 pixels loads 18 x 10 in place of 9 x 128
// (0.16).
//
// Requires: as ptx_sm90a, and stride 1, at most three taps an axis, input channels a multiple of 8, statistics of
// patches (can_run). Output channels of another number leave from the narrowest tile, without residual and statistics.
// Bound: products at 32x64x64x192 -> 192. At batch 1: the weights from L2, and partly filled waves.
// Numerics: as ptx_sm90a, but for the order of the sum: 64 channels, then taps.
// Source: PTX ISA, "wgmma", "Matrix descriptor format", "cp.async.bulk.tensor".
#pragma once

#include <cuda_runtime.h>

#include <type_traits>

#include "kernels/convolution/ptx_halo_epilogue.cuh"
#include "kernels/convolution/ptx_halo_layout.cuh"
#include "kernels/convolution/ptx_halo_norm.cuh"
#include "kernels/convolution/ptx_halo_products.cuh"
#include "kernels/convolution/ptx_halo_statistics.cuh"
#include "kernels/convolution/ptx_side.cuh"
#include "kernels/convolution/ptx_sm90a_epilogue.cuh"
#include "kernels/convolution/ptx_sm90a_partials.cuh"
#include "kernels/product/sm90a_loads.cuh"
#include "kernels/product/sm90a_mainloop.cuh"
#include "kernels/ptx/elect.cuh"
#include "kernels/ptx/setmaxnreg.cuh"
#include "kernels/ptx/tma.cuh"

namespace noisefloor::convolution {

template <class T, int kTile, bool kFused, class Op = Outputs>
__global__ void __launch_bounds__(HaloLayout<kTile, kFused>::kThreads, kHaloTiles[kTile].blocks_per_sm)
    convolution_ptx_sm90a_halo(const __grid_constant__ CUtensorMap map_x, const __grid_constant__ CUtensorMap map_w,
                               const __grid_constant__ PhaseMaps maps_y,
                               const __grid_constant__ PhaseMaps maps_residual,
                               const __grid_constant__ SideMaps maps_side,
                               const __grid_constant__ HaloArguments<T, Op> args) {
  using L = HaloLayout<kTile, kFused>;
  constexpr Tile kShape = L::kShape;
  constexpr int kBlockM = kShape.block_m();
  constexpr int kBlockN = kShape.block_n;
  constexpr int kHalf = kBlockN / 2;
  extern __shared__ std::uint8_t raw[];
  const std::uint32_t base = (ptx::shared_address(raw) + kSwizzleAtom - 1) / kSwizzleAtom * kSwizzleAtom;
  std::uint8_t* const aligned = raw + (base - ptx::shared_address(raw));
  const std::uint32_t weights = base + args.halo_stages * args.halo_bytes;
  const int store_bytes = args.splits > 1 ? kSplitStaging : L::kStoreBytes;
  const int channels_offset = args.region_bytes + kShape.consumers * store_bytes;
  const Barriers barriers(base + channels_offset + kShape.consumers * kBlockN * 8, args.stages);
  const HaloBarriers<kShape.consumers, kFused> halo_barriers(barriers.full + Barriers::bytes(args.stages),
                                                             args.halo_stages, args.norm != nullptr);
  const WarpRole<kShape.consumers> role(args.multicast, args.splits);
  const Convolution& c = args.c;

  const auto [first_step, steps] = product::StepRange(args.k_steps, role.split, args.splits);
  const int tiles = args.order.tiles();
  const int first_tile = role.first_tile();
  const int tile_stride = role.tile_stride();
  HaloCoordinate at;
  int n_tile = 0;
  const auto find = [&](int tile) {
    const TileIndex index = args.order.locate(tile);
    at = args.tiling.place(index.m_cluster, role.m_rank);
    n_tile = index.n_tile;
  };
  if (role.producer) {
    if (role.first_of_producer) {
      ptx::prefetch_tensor_map(&map_x);
      ptx::prefetch_tensor_map(&map_w);
#pragma unroll 1
      for (int phase = 0; phase < args.c.phases(); ++phase) {
        ptx::prefetch_tensor_map(&maps_y.phase[phase]);
        if (args.epilogue.residual) ptx::prefetch_tensor_map(&maps_residual.phase[phase]);
      }
      prefetch(maps_side, c);
    }
    find(first_tile);
    product::pin(at.phase, at.image, at.y0, at.x0, n_tile);
  } else {
    halo_barriers.init(role, args.halo_stages);
    barriers.init<kShape.consumers>(role, args.stages,
                                    (args.splits - 1) * share_blocks(kBlockN, args.splits, role.split) * kBlockM * 32);
  }
  product::meet(role);

  // A residual comes through the ring of the weights, a consumer's patch to a stage; a split tile reads its share
  // itself.
  const int residual_stages = args.epilogue.residual && args.splits == 1 ? kShape.consumers : 0;
  ptx::Ring ring, halo_ring;

  if (role.producer) {
    if constexpr (L::kMoveRegisters) ptx::setmaxnreg_dec<L::kProducerRegisters>();
    if (role.tma_warp) {
      const auto box_bytes = static_cast<std::uint32_t>(args.tiling.halo.lines() * kRowBytes);
      const int of_taps = max(min(args.tap_steps - first_step, steps), 0);
      for (int tile = first_tile; tile < tiles; tile += tile_stride) {
        if (tile != first_tile) find(tile);
        const int y = at.input_y(c), x = at.input_x(c);
        const int row_w = (c.phase_weights ? at.phase * c.cout : 0) + n_tile * kBlockN;
        const KernelTaps taps(c, at.phase);
        TapStep step(args.tiling, first_step);
        const int early = tile == first_tile ? min(args.early, of_taps) : 0;
        if (tile == first_tile) {
          TapStep ahead = step;
          product::load_early(
              barriers, early, L::kWeightBytes,
              [&](int i, std::uint32_t full) {
                product::load_b<kHalf, true, kWeightBox<Op>>(
                    role, &map_w, weights + i * L::kWeightBytes, full,
                    weight_k<Op>(c, taps.at(ahead.ty, ahead.tx), ahead.part * kBlockK),
                    weight_row<Op>(c, taps.at(ahead.ty, ahead.tx), row_w));
              },
              [&] { ahead.advance(c); });
          product::wait_for_launches();
        }
        const auto load_taps = [&](auto shares) {
#pragma unroll 1
          for (int i = 0; i < of_taps; ++i, ring.advance(args.stages), step.advance(c)) {
            const int channel = step.part * kBlockK;
            if ((!kFused || !args.norm) && (i == 0 || step.enters_halo())) {  // else who norms it asks for it
              const std::uint32_t full = halo_barriers.full + halo_ring.stage * 8;
              ptx::mbarrier_wait(halo_barriers.empty + halo_ring.stage * 8, halo_ring.parity ^ 1);
              if (ptx::elect_one()) {
                ptx::mbarrier_arrive_expect_tx(full, box_bytes);
                ptx::tma_load_4d(base + halo_ring.stage * args.halo_bytes, &map_x, full, channel, x, y, at.image);
              }
              halo_ring.advance(args.halo_stages);
            }
            if (i < early) continue;
            const std::uint32_t full = barriers.full + ring.stage * 8;
            ptx::mbarrier_wait(barriers.empty + ring.stage * 8, ring.parity ^ 1);
            if (ptx::elect_one()) {
              ptx::mbarrier_arrive_expect_tx(full, L::kWeightBytes);
              product::load_b<kHalf, shares, kWeightBox<Op>>(role, &map_w, weights + ring.stage * L::kWeightBytes, full,
                                                             weight_k<Op>(c, taps.at(step.ty, step.tx), channel),
                                                             weight_row<Op>(c, taps.at(step.ty, step.tx), row_w));
            }
          }
        };
        product::with_sharing(role, load_taps);
#pragma unroll 1
        for (int i = of_taps; i < steps; ++i, ring.advance(args.stages)) {
          const SideCoordinate from = side_coordinate(c, first_step + i - args.tap_steps);
          const std::uint32_t box = halo_barriers.full + halo_ring.stage * 8;
          ptx::mbarrier_wait(halo_barriers.empty + halo_ring.stage * 8, halo_ring.parity ^ 1);
          if (ptx::elect_one()) {
            ptx::mbarrier_arrive_expect_tx(box, kBlockM * kRowBytes);
            ptx::tma_load_4d(base + halo_ring.stage * args.halo_bytes, maps_side.of(from), box, from.channel, at.x0,
                             at.y0, at.image);
          }
          halo_ring.advance(args.halo_stages);
          const std::uint32_t full = barriers.full + ring.stage * 8;
          ptx::mbarrier_wait(barriers.empty + ring.stage * 8, ring.parity ^ 1);
          if (ptx::elect_one()) {
            ptx::mbarrier_arrive_expect_tx(full, L::kWeightBytes);
            product::load_b<kHalf, true>(role, &maps_side.w, weights + ring.stage * L::kWeightBytes, full, from.column,
                                         row_w);
          }
        }
        const int halved = c.residual_upsample ? 1 : 0;  // pixels of the residual's maps, along both axes
        for (int consumer = 0; consumer < residual_stages; ++consumer, ring.advance(args.stages)) {
          const Patch patch = args.tiling.patch(c, at, consumer);
          const std::uint32_t full = barriers.full + ring.stage * 8;
          ptx::mbarrier_wait(barriers.empty + ring.stage * 8, ring.parity ^ 1);
          if (ptx::elect_one()) {
            ptx::mbarrier_arrive_expect_tx(full, L::kWeightBytes);
            for (int piece = 0; piece < L::kPieces; ++piece)
              ptx::tma_load_5d(weights + ring.stage * L::kWeightBytes + piece * L::kPieceBytes,
                               &maps_residual.phase[at.phase], full, n_tile * kBlockN + piece * L::kPieceColumns, 0,
                               patch.x0 >> halved, 0, (patch.at_image * c.y.out + patch.y0) >> halved);
          }
        }
      }
      product::let_next_launch_start();
      product::await_stages(role, barriers, ring, args.stages);
    }
    if constexpr (kFused) {
      if (args.norm && role.warp > kShape.consumers * 4) {
        product::wait_for_launches();
        const NormPart<T, kShape.consumers> norm{args, halo_barriers, base,
                                                 static_cast<int>(threadIdx.x) - (kShape.consumers * 4 + 1) * 32};
        for (int tile = first_tile; tile < tiles; tile += tile_stride) {
          const TileIndex index = args.order.locate(tile);
          norm.run(&map_x, args.tiling.place(index.m_cluster, role.m_rank), halo_ring, first_step, steps);
        }
      }
    }
    product::leave_producer(role, barriers, args.stages, steps);
  } else {
    if constexpr (L::kMoveRegisters) ptx::setmaxnreg_inc<L::kConsumerRegisters>();
    product::wait_for_launches();
    std::uint8_t* const staging = aligned + args.region_bytes + role.consumer * store_bytes;
    auto* const mul = reinterpret_cast<float*>(aligned + channels_offset) + role.consumer * 2 * kBlockN;
    ptx::Ring buffer;
    Addressees addressees;
    if (L::kCanSplit && args.splits > 1)
      addressees.find<kBlockN, kBlockM>(role, barriers, args.splits, weights + args.dsmem.stage * L::kWeightBytes);
    for (int tile = first_tile; tile < tiles; tile += tile_stride) {
      const TileIndex index = args.order.locate(tile);
      const Patch patch = args.tiling.patch(c, args.tiling.place(index.m_cluster, role.m_rank), role.consumer);
      const EpilogueStore<T, Patch, Op> drain{args,    patch, index.n_tile * kBlockN, 1 + role.consumer,
                                              staging, mul,   mul + kBlockN,          {nullptr, nullptr}};
      const T* image_shift = args.epilogue.image_shift;
      if (image_shift) image_shift += std::int64_t{min(patch.at_image, c.images - 1)} * c.cout;
      const ChannelPair<kBlockN> channels(args, drain.column0, image_shift);

      float acc[1][kBlockN / 2];
      const Held held = multiply_taps<T, kTile, kFused>(role, barriers, halo_barriers, args, base, halo_ring, ring,
                                                        first_step, steps, acc);
      product::finish_products(acc);
      barriers.release(role, held.weights);
      halo_barriers.release(role.lane, held.halo);

      int residual_stage = -1;
      for (int consumer = 0; consumer < residual_stages; ++consumer, ring.advance(args.stages)) {
        ptx::mbarrier_wait(barriers.full + ring.stage * 8, ring.parity);
        if (consumer == role.consumer)
          residual_stage = ring.stage;
        else
          barriers.release(role, ring.stage);
      }

      if (kBlockN == kNarrowHalo && !stores_by_tma(c)) drain.sync();  // all have read those of the tile before
      channels.write(drain.mul, drain.add);
      if (args.splits > 1) {
        if constexpr (L::kCanSplit) {
          product::await_dsmem(args.dsmem.opens, steps);
          send_partial<kBlockN>(acc[0], addressees);
          const auto* dsmem =
              reinterpret_cast<const float*>(aligned + (weights - base) + args.dsmem.stage * L::kWeightBytes);
          store_partials<T, kBlockM, kFused>(drain, dsmem, args.splits, role.split, kBlockN, role.consumer,
                                             [&] { product::await_sums(barriers); });
        }
      } else {
        const bool add = residual_stage >= 0;
        const auto store = [&]<Finish kFinish>() {
          store_patch<T, kTile, kFused, kFinish>(drain, &maps_y.phase[patch.phase], acc[0],
                                                 add ? weights + residual_stage * L::kWeightBytes : 0, buffer);
        };
        bool plain = !kFused && !add;
        if constexpr (!kIsGradient<Op>)
          plain = plain && args.epilogue.act == Activation::none && args.epilogue.gain == 1;
        if (plain)
          store.template operator()<kPlain>();
        else
          store.template operator()<kIsGradient<Op> ? kWeighed : kAny>();
        if (add) barriers.release(role, residual_stage);
      }
    }
    if (role.warp % 4 == 0 && ptx::elect_one()) ptx::tma_store_wait_read<0>();
  }
}

}  // namespace noisefloor::convolution
