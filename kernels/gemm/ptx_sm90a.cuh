// gemm with Hopper's own instructions: TMA fills shared memory and wgmma reads it. A producer warp keeps k-steps of
// its block's tiles in flight on mbarriers; one or two consumer warpgroups multiply, sharing each tile or taking turns
// on whole ones (ping-pong; others bring residuals). Blocks are persistent, so that loads and stores run under
// other tiles' products. Neighbours along m may share B by multicast, those along n A, and up to 8 blocks of a cluster
// may split k: they exchange fp32 sums through distributed shared memory. schedule.cpp picks tile, sharing and split.
//
// Better than tensor_core_sm80: wgmma has twice the rate of mma.sync there, operands never pass through registers, and
// no thread waits for a load or computes an address.
//
// Requires: bf16 or fp16; k and n multiples of 8, parts of 32; 16-byte aligned tensors. Honours programmatic launch.
// Bound: products at 4096^3; expected limiter: power. Small problems: the latency of their first loads.
// Numerics: fp32 accumulation in wgmma; partial sums added in block order, whatever the timing; fp32 epilogue, one
// rounding.
// Source: PTX ISA, "wgmma", "cp.async.bulk", "mbarrier", "setmaxnreg"; the roles of warps after CUTLASS's
// warp-specialised persistent kernels.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/gemm/ptx_sm90a_epilogue.cuh"
#include "kernels/gemm/ptx_sm90a_fp32.cuh"
#include "kernels/gemm/ptx_sm90a_layout.cuh"
#include "kernels/gemm/ptx_sm90a_partials.cuh"
#include "kernels/product/sm90a_consumer.cuh"
#include "kernels/product/sm90a_loads.cuh"
#include "kernels/product/sm90a_mainloop.cuh"
#include "kernels/ptx/elect.cuh"
#include "kernels/ptx/setmaxnreg.cuh"
#include "kernels/ptx/tma.cuh"

namespace noisefloor::gemm {
namespace {

// A block's part of a product, of one of the kernels below.
template <class T, int kTile, Layout kLayout, class Args>
__device__ __forceinline__ void run_block(const CUtensorMap& map_a, const CUtensorMap& map_b, const CUtensorMap& map_d,
                                          const CUtensorMap& map_residual, const CUtensorMap& map_blend,
                                          const Args& args) {
  using L = BlockLayout<kTile>;
  constexpr Tile kShape = L::kShape;
  constexpr product::Majors kMajors = majors_of(kLayout, kShape);
  constexpr bool kForward = kLayout == Layout::nt;  // gradients have neither activation nor shift nor blend
  constexpr int kBlockM = kShape.block_m();
  constexpr int kBlockN = kShape.block_n;
  constexpr int kHalf = kBlockN / 2;
  extern __shared__ __align__(L::kAlignment) std::uint8_t raw[];
  const std::uint32_t base = (ptx::shared_address(raw) + kSwizzleAtom - 1) / kSwizzleAtom * kSwizzleAtom;
  std::uint8_t* const aligned = raw + (base - ptx::shared_address(raw));
  const int store_offset = args.stages * L::kStageBytes;
  const int bias_offset = store_offset + kShape.consumers * L::kStoreBytes;
  const Barriers barriers(base + bias_offset + kShape.consumers * L::kBiasBytes, args.stages);
  const WarpRole<kShape.consumers> role(args.multicast, args.splits, args.multicast_a);
  const bool gated = args.epilogue.gated;
  const int out_n = gated ? kHalf : kBlockN;  // columns of D in a tile
  const bool residual = args.epilogue.residual != nullptr;
  const CUtensorMap* const blend = args.epilogue.blend ? &map_blend : nullptr;

  constexpr bool kPingpong = kShape.pingpong;
  const std::uint32_t residual_barriers = barriers.full + Barriers::bytes(args.stages);
  const int tiles = args.order.tiles();
  const auto [part, first_tile] = place_in_parts<kLayout>(role.first_tile(), tiles);
  const auto [first_step, steps] = steps_of<kLayout>(args, part, role.split);
  const int tile_stride = role.tile_stride();
  // Rows of A and columns of D, with which go the rows of B, of a tile.
  const auto place_of = [&](int tile) {
    const TileIndex index = args.order.locate(tile);
    return int2{(index.m_cluster * args.multicast + role.m_rank) * kBlockM,
                (index.n_tile * args.multicast_a + role.n_rank) * out_n};
  };
  int2 place;
  if (role.producer) {
    if (role.first_of_producer) {
      ptx::prefetch_tensor_map(&map_a);
      ptx::prefetch_tensor_map(&map_b);
      if constexpr (kLayout != Layout::tn) ptx::prefetch_tensor_map(&map_d);
      if (residual) ptx::prefetch_tensor_map(&map_residual);
      if (kPingpong && blend) ptx::prefetch_tensor_map(blend);
      if (kPingpong && residual) {
        for (int i = 0; i < kShape.consumers; ++i) ResidualBuffers(residual_barriers, i).init();
        ptx::fence_mbarrier_init();
      }
    }
    place = place_of(first_tile);
    product::pin(place.x, place.y);
  } else {
    // Of a split tile, from the other blocks and of the residual.
    const int share_rows = kBlockM / args.splits;
    constexpr int kSent = kLayout == Layout::tn ? kBlockN + kRowSumColumns : kBlockN;
    const int received = share_rows * ((args.splits - 1) * kSent * 4 + (residual ? out_n * 2 : 0));
    barriers.init<kPingpong ? 1 : kShape.consumers>(role, args.stages, received);
  }
  product::meet(role);

  const ResidualPieces pieces = L::residual(gated);
  constexpr int kOfResidual = L::residual(false).stages(), kOfGated = L::residual(true).stages();
  const int residual_stages = residual && args.splits == 1 && !kPingpong ? (gated ? kOfGated : kOfResidual) : 0;
  ptx::Ring ring;

  if (role.producer) {
    if constexpr (L::kMoveRegisters) ptx::setmaxnreg_dec<L::kProducerRegisters>();
    if (role.tma_warp) {
      for (int tile = first_tile; tile < tiles; tile += tile_stride) {
        if (tile != first_tile) place = place_of(tile);
        const int row_a = place.x, column_d = place.y;
        const int early = tile == first_tile ? min(args.early, steps) : 0;
        if (tile == first_tile) {
          product::load_early(
              barriers, early, L::kStageBytes,
              [&](int step, std::uint32_t barrier) {
                product::load_b<kHalf, true, kMajors.b_box()>(role, &map_b, base + step * L::kStageBytes + L::kABytes,
                                                              barrier, (first_step + step) * kBlockK, column_d,
                                                              args.second_half);
              },
              [] {});
          product::wait_for_launches();
        }
        const auto load_steps = [&](auto shares) {
#pragma unroll 1
          for (int step = 0; step < steps; ++step, ring.advance(args.stages)) {
            const std::uint32_t a = base + ring.stage * L::kStageBytes;
            const std::uint32_t barrier = barriers.full + ring.stage * 8;
            const int column = (first_step + step) * kBlockK;
            ptx::mbarrier_wait(barriers.empty + ring.stage * 8, ring.parity ^ 1);
            if (ptx::elect_one()) {
              if (step >= early) ptx::mbarrier_arrive_expect_tx(barrier, L::kStageBytes);
              product::load_a<kBlockM, shares, kMajors.a>(role, &map_a, a, barrier, column, row_a);
              if (step >= early)
                product::load_b<kHalf, shares, kMajors.b_box()>(role, &map_b, a + L::kABytes, barrier, column, column_d,
                                                                args.second_half);
            }
          }
        };
        product::with_sharing(role, load_steps);
        // Where consumers share the tile, its residual comes through the same ring, one or two steps behind the
        // products, so that no epilogue waits for DRAM. A split tile's waits where stores are staged, each block's
        // share of it.
#pragma unroll 1
        for (int piece = 0; piece < pieces.count && residual_stages > 0; ring.advance(args.stages)) {
          const std::uint32_t barrier = barriers.full + ring.stage * 8;
          const int end = min(piece + pieces.per_stage, pieces.count);
          std::uint32_t to = base + ring.stage * L::kStageBytes;
          ptx::mbarrier_wait(barriers.empty + ring.stage * 8, ring.parity ^ 1);
          if (ptx::elect_one())
            ptx::mbarrier_arrive_expect_tx(barrier, static_cast<std::uint32_t>((end - piece) * pieces.bytes));
#pragma unroll 1
          for (; piece < end; ++piece, to += pieces.bytes)
            if (ptx::elect_one())
              ptx::tma_load_2d(to, &map_residual, barrier, column_d + piece * pieces.columns, row_a);
        }
        if (residual && args.splits > 1 && ptx::elect_one())
          ptx::tma_load_2d(base + store_offset, &map_residual, barriers.received, column_d,
                           row_a + role.split * (kBlockM / args.splits));
      }
      product::let_next_launch_start();
      product::await_stages(role, barriers, ring, args.stages);
    } else if (const int consumer = role.warp - kShape.consumers * 4 - 1;
               kPingpong && residual && consumer >= 0 && consumer < kShape.consumers && ptx::elect_one()) {
      const ResidualBuffers residual_buffers(residual_barriers, consumer);
      const int buffers = gated ? buffers_in(L::kStoreBytes, kHalf) : buffers_in(L::kStoreBytes, kBlockN);
      product::wait_for_launches();
      for (int tile = first_tile + consumer * tile_stride; tile < tiles; tile += 2 * tile_stride) {
        const auto [row_a, column_d] = place_of(tile);
        for (int sub = 0; sub < L::kSubtiles; ++sub)
          residual_buffers.load(&map_residual, blend, pieces, base + store_offset + consumer * L::kStoreBytes, buffers,
                                ring, row_a + sub * 64, column_d);
      }
    }
    product::leave_producer(role, barriers, args.stages, steps);
  } else if constexpr (kLayout == Layout::tn) {
    if constexpr (L::kMoveRegisters) ptx::setmaxnreg_inc<L::kConsumerRegisters>();
    consume_to_fp32<T, kTile>(role, barriers, args, base, aligned, part, first_tile, steps);
  } else {
    if constexpr (L::kMoveRegisters) ptx::setmaxnreg_inc<L::kConsumerRegisters>();
    product::wait_for_launches();
    auto* const bias = reinterpret_cast<float2*>(aligned + bias_offset + role.consumer * L::kBiasBytes);
    const std::uint32_t staging = base + store_offset + role.consumer * L::kStoreBytes;
    ptx::Ring buffer;
    TilePosition at{0, args.m, 0, args.n, 0, 0};
    // Over the steps of a tile that is not this consumer's.
    const auto skip_tile = [&] { ring.skip(steps, args.stages); };
    if (kPingpong && role.consumer == 1) skip_tile();
    for (int tile = first_tile + (kPingpong ? role.consumer * tile_stride : 0); tile < tiles;
         tile += (kPingpong ? 2 : 1) * tile_stride) {
      const TileIndex index = args.order.locate(tile);
      at.row0 = (std::int64_t{index.m_cluster} * args.multicast + role.m_rank) * kBlockM;
      const int n_tile = index.n_tile * args.multicast_a + role.n_rank;
      at.column0 = n_tile * out_n;
      at.part = n_tile / args.part_tiles;
      at.part_column = at.column0 - at.part * args.epilogue.part;
      // A shift that is the same for all of this consumer's rows goes with the bias; else rows look theirs up.
      const std::int64_t first_row = at.row0 + (kPingpong ? 0 : role.consumer * 64);
      const bool one_shift = args.splits == 1 && args.epilogue.one_image(first_row, first_row + L::kSubtiles * 64);
      const BiasPair bias_pair = load_bias_pair<T, kBlockN>(
          args.epilogue, one_shift ? args.epilogue.shift_of(first_row) : nullptr, at.column0);

      float acc[L::kSubtiles][kBlockN / 2];
      product::multiply_tile<T, kBlockN, L::kStageBytes, L::kABytes, kPingpong, kMajors>(
          role, barriers, base, ring, args.stages, steps, L::kCanSplit ? args.dsmem.opens : -1, tile == first_tile,
          tile + tile_stride >= tiles, acc);
      int landed[kMaxResidualStages] = {};  // the stages of the residual's steps
      if constexpr (kPingpong) {
        skip_tile();
      } else {
#pragma unroll
        for (int i = 0; i < kMaxResidualStages; ++i) {
          if (i >= residual_stages) break;
          ptx::mbarrier_wait(barriers.full + ring.stage * 8, ring.parity);
          landed[i] = ring.stage;
          ring.advance(args.stages);
        }
      }

      write_bias_pair<T, kBlockN>(bias_pair, bias);
      if (args.splits > 1) {
        if constexpr (L::kCanSplit) {
          const int dsmem = args.dsmem.stage * L::kStageBytes;
          product::await_dsmem(args.dsmem.opens, steps);
          send_partial<kBlockM, kBlockN>(role, barriers, acc[0], base + dsmem);
          ptx::named_barrier_sync(1, kShape.consumers * 128);  // the bias and this block's own sums are there
          product::await_sums(barriers);
          const product::Partials partials{reinterpret_cast<const float*>(aligned + dsmem), args.splits,
                                           kDsmemBytes<kBlockM, kBlockN> / 4 / args.splits};
          const auto* share_residual = reinterpret_cast<const T*>(aligned + store_offset);
          reduce_and_store<T, kBlockM, kBlockN>(partials, role.split, bias, share_residual, args.epilogue, args.d, at);
        }
      } else {
        const auto store = [&]<Finish kFinish>() {
          constexpr int kBuffers = buffers_in(L::kStoreBytes, kFinish.gate ? kHalf : kBlockN);
          if constexpr (kBuffers > 1) ptx::named_barrier_sync(1 + role.consumer, 128);  // the bias is there
#pragma unroll 1
          for (int sub = 0; sub < L::kSubtiles; ++sub) {
            const int row_block = kPingpong ? sub : role.consumer;
            const TilePosition mine{at.row0 + row_block * 64, at.rows, at.column0, at.columns, at.part, at.part_column};
            const auto store_with = [&](const auto& from) {
              store_accumulator<T, kBlockN, kFinish, kBuffers>(acc[0], bias, args.epilogue, map_d, staging,
                                                               1 + role.consumer, buffer, mine, from,
                                                               tile - first_tile < 2 * tile_stride && sub == 0);
            };
            if constexpr (kPingpong)
              store_with(ResidualBuffers(residual_barriers, role.consumer));
            else
              store_with(RingResidual<kShape.consumers, L::residual(kFinish.gate)>{role, barriers, base, L::kStageBytes,
                                                                                   row_block, landed[0], landed[1]});
            if constexpr (L::kSubtiles == 2)
#pragma unroll
              for (int i = 0; i < kBlockN / 2; ++i) acc[0][i] = acc[1][i];
          }
        };
        if (kForward && gated)
          store.template operator()<kForward ? kGate : kAdd>();
        else if (kForward && kPingpong && blend)
          store.template operator()<kForward && kPingpong ? kBlend : kAdd>();
        else if (kForward && args.epilogue.image_shift && !one_shift)
          store.template operator()<kForward ? kShift : kAdd>();
        else if (kForward && args.epilogue.act != Activation::none)
          store.template operator()<kForward ? kActivate : kAdd>();
        else if (residual)
          store.template operator()<kAdd>();
        else
          store.template operator()<kLinear>();
      }
    }
    if (role.warp % 4 == 0 && ptx::elect_one()) ptx::tma_store_wait_read<0>();
  }
}

template <class T, int kTile>
__global__ void __launch_bounds__(BlockLayout<kTile>::kThreads, kTiles[kTile].blocks_per_sm)
    gemm_ptx_sm90a(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                   const __grid_constant__ CUtensorMap map_d, const __grid_constant__ CUtensorMap map_residual,
                   const __grid_constant__ CUtensorMap map_blend, const __grid_constant__ Arguments<T> args) {
  run_block<T, kTile, Layout::nt>(map_a, map_b, map_d, map_residual, map_blend, args);
}

// Of layouts nn and tn.
template <class T, int kTile, Layout kLayout>
__global__ void __launch_bounds__(BlockLayout<kTile>::kThreads, kTiles[kTile].blocks_per_sm)
    gemm_ptx_sm90a_gradient(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                            const __grid_constant__ CUtensorMap map_d, const __grid_constant__ CUtensorMap map_residual,
                            const __grid_constant__ CUtensorMap map_blend,
                            const __grid_constant__ GradientArguments<T> args) {
  run_block<T, kTile, kLayout>(map_a, map_b, map_d, map_residual, map_blend, args);
}

}  // namespace
}  // namespace noisefloor::gemm
