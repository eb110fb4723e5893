// gemm with Hopper's own instructions: TMA fills shared memory and wgmma reads it. A producer thread keeps k-steps of
// its block's tiles in flight on mbarriers; one or two consumer warpgroups multiply, sharing each tile or taking turns
// on whole ones (ping-pong). Blocks are persistent, so that loads and stores run under other tiles' products.
// Neighbours along m may share B by multicast, and up to 8 blocks of a cluster may split k: they exchange fp32 partial
// sums through distributed shared memory. schedule.cpp picks tile, multicast and split.
//
// Better than tensor_core_sm80: wgmma has twice the rate of mma.sync there, operands never pass through registers, and
// no thread waits for a load or computes an address.
//
// Requires: bf16 or fp16, k and n multiples of 8, 16-byte aligned tensors. Honours programmatic dependent launch.
// Bound: products at 4096^3; expected limiter: power. Small problems: the latency of their first loads.
// Numerics: fp32 accumulation in wgmma; partial sums added in block order, whatever the timing; fp32 epilogue, one
// rounding.
// Source: PTX ISA, "wgmma", "cp.async.bulk", "mbarrier", "setmaxnreg"; the roles of warps after CUTLASS's
// warp-specialised persistent kernels.
#include <cuda_runtime.h>

#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/tensor_map.h"
#include "kernels/gemm/launchers.h"
#include "kernels/gemm/ptx_sm90a_epilogue.cuh"
#include "kernels/gemm/ptx_sm90a_layout.cuh"
#include "kernels/gemm/schedule.h"
#include "kernels/ptx/cluster.cuh"
#include "kernels/ptx/fence.cuh"
#include "kernels/ptx/griddepcontrol.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/setmaxnreg.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/ptx/wgmma.cuh"

namespace noisefloor::gemm {
namespace {

template <class T, int kTile>
__global__ void __launch_bounds__(Layout<kTile>::kThreads, kTiles[kTile].blocks_per_sm)
    gemm_ptx_sm90a(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                   const __grid_constant__ CUtensorMap map_d, const __grid_constant__ CUtensorMap map_residual,
                   const __grid_constant__ Arguments<T> args) {
  using L = Layout<kTile>;
  constexpr Tile kShape = L::kShape;
  constexpr int kBlockM = kShape.block_m();
  constexpr int kBlockN = kShape.block_n;
  constexpr int kHalf = kBlockN / 2;
  extern __shared__ std::uint8_t raw[];
  const std::uint32_t base = (ptx::shared_address(raw) + kSwizzleAtom - 1) / kSwizzleAtom * kSwizzleAtom;
  std::uint8_t* const aligned = raw + (base - ptx::shared_address(raw));
  const int store_offset = args.stages * L::kStageBytes;
  const int bias_offset = store_offset + kShape.consumers * L::kStoreBytes;
  const std::uint32_t full = base + bias_offset + kShape.consumers * L::kBiasBytes;
  const std::uint32_t empty = full + args.stages * 8;
  const std::uint32_t received = empty + args.stages * 8;
  const int share_bytes = kPartialBytes<kBlockM, kBlockN> / args.splits;
  const bool gated = args.epilogue.gated();
  const int out_n = gated ? kHalf : kBlockN;  // columns of D in a tile
  const bool residual = args.epilogue.residual != nullptr;

  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int consumer = warp / 4;
  const bool producer = warp >= kShape.consumers * 4;
  const bool tma_thread = threadIdx.x == kShape.consumers * 128;
  const int cluster = args.multicast * args.splits;
  const int rank = cluster > 1 ? static_cast<int>(ptx::cluster_rank()) : 0;
  const int m_rank = rank % args.multicast;
  const int split = rank / args.multicast;

  if (tma_thread) {
    ptx::prefetch_tensor_map(&map_a);
    ptx::prefetch_tensor_map(&map_b);
    for (int stage = 0; stage < args.stages; ++stage) {
      ptx::mbarrier_init(full + stage * 8, 1);
      constexpr int kReaders = kShape.pingpong ? 1 : kShape.consumers;
      ptx::mbarrier_init(empty + stage * 8, static_cast<std::uint32_t>(kReaders * 4 * args.multicast));
    }
    ptx::mbarrier_init(received, 1);
    ptx::fence_mbarrier_init();
    if (args.splits > 1) {
      const int residual_bytes = residual ? kBlockM / args.splits * out_n * 2 : 0;
      ptx::mbarrier_arrive_expect_tx(received,
                                     static_cast<std::uint32_t>((args.splits - 1) * share_bytes + residual_bytes));
    }
  }
  __syncwarp();
  if (args.multicast > 1)
    ptx::cluster_meet();  // fence_mbarrier_init has released the barriers to the cluster
  else
    __syncthreads();
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();

  const int first_step = static_cast<int>(static_cast<std::int64_t>(args.k_steps) * split / args.splits);
  const int steps = static_cast<int>(static_cast<std::int64_t>(args.k_steps) * (split + 1) / args.splits) - first_step;
  const int tiles = args.m_clusters * args.n_tiles;
  const int first_tile = static_cast<int>(blockIdx.x) / cluster;
  const int tile_stride = static_cast<int>(gridDim.x) / cluster;
  const ResidualPieces pieces = L::residual(gated);
  const int residual_stages = residual && args.splits == 1 ? pieces.stages() : 0;

  int stage = 0;
  std::uint32_t parity = 0;
  const auto advance = [&] {
    if (++stage == args.stages) {
      stage = 0;
      parity ^= 1;
    }
  };

  // Over the steps of a tile that is not this consumer's.
  const auto skip_tile = [&] {
    const int passed = stage + steps + residual_stages;
    stage = passed % args.stages;
    parity ^= passed / args.stages & 1;
  };

  if (producer) {
    if constexpr (L::kMoveRegisters) ptx::setmaxnreg_dec<L::kProducerRegisters>();
    if (tma_thread) {
      const auto both = static_cast<std::uint16_t>(3u << (rank - m_rank));
      for (int tile = first_tile; tile < tiles; tile += tile_stride) {
        const TileIndex index = locate(tile, args.m_clusters, args.n_tiles);
        const int row_a = (index.m_cluster * args.multicast + m_rank) * kBlockM;
        const int row_b = index.n_tile * out_n;
        for (int step = 0; step < steps; ++step, advance()) {
          const std::uint32_t a = base + stage * L::kStageBytes;
          const std::uint32_t b = a + L::kABytes;
          const std::uint32_t barrier = full + stage * 8;
          const int column = (first_step + step) * kBlockK;
          ptx::mbarrier_wait(empty + stage * 8, parity ^ 1);
          ptx::mbarrier_arrive_expect_tx(barrier, L::kStageBytes);
          ptx::tma_load_2d(a, &map_a, barrier, column, row_a);
          if (args.multicast > 1) {
            ptx::tma_load_2d_multicast(b + m_rank * kHalf * kRowBytes, &map_b, barrier, column,
                                       row_b + m_rank * args.second_half, both);
          } else {
            ptx::tma_load_2d(b, &map_b, barrier, column, row_b);
            ptx::tma_load_2d(b + kHalf * kRowBytes, &map_b, barrier, column, row_b + args.second_half);
          }
        }
        // A residual comes through the same ring, one or two steps behind the products, so that no epilogue waits for
        // DRAM. A split tile's waits where stores are staged, each block's share of it.
        const int column_d = index.n_tile * out_n;  // of D and the residual
#pragma unroll 1
        for (int piece = 0; piece < pieces.count && residual_stages > 0; advance()) {
          const std::uint32_t barrier = full + stage * 8;
          const int end = min(piece + pieces.per_stage, pieces.count);
          std::uint32_t to = base + stage * L::kStageBytes;
          ptx::mbarrier_wait(empty + stage * 8, parity ^ 1);
          ptx::mbarrier_arrive_expect_tx(barrier, static_cast<std::uint32_t>((end - piece) * pieces.bytes));
#pragma unroll 1
          for (; piece < end; ++piece, to += pieces.bytes)
            ptx::tma_load_2d(to, &map_residual, barrier, column_d + piece * pieces.columns, row_a);
        }
        if (residual && args.splits > 1)
          ptx::tma_load_2d(base + store_offset, &map_residual, received, column_d,
                           row_a + split * (kBlockM / args.splits));
      }
    }
    __syncwarp();
    if (args.splits > 1) ptx::cluster_meet();
    if (cluster > 1) ptx::cluster_meet();
  } else {
    if constexpr (L::kMoveRegisters) ptx::setmaxnreg_inc<L::kConsumerRegisters>();
    // The stage's consumer is done with it: one arrival per warp, in each block that may write the stage.
    const auto release = [&](int which) {
      if (args.multicast > 1) {
        if (lane < 2)
          ptx::mbarrier_arrive_cluster_relaxed(
              ptx::map_to_rank(empty + which * 8, static_cast<std::uint32_t>(rank - m_rank + lane)));
      } else if (lane == 0) {
        ptx::mbarrier_arrive(empty + which * 8);
      }
    };
    auto* const bias = reinterpret_cast<std::uint32_t*>(aligned + bias_offset + consumer * L::kBiasBytes);
    const std::uint32_t staging = base + store_offset + consumer * L::kStoreBytes;
    int buffer = 0;
    TilePosition at{0, args.m, 0, args.n};
    constexpr bool kPingpong = kShape.pingpong;
    constexpr int kTurnBarrier = 3;
    if (kPingpong && consumer == 1) skip_tile();
    for (int tile = first_tile + (kPingpong ? consumer * tile_stride : 0); tile < tiles;
         tile += (kPingpong ? 2 : 1) * tile_stride) {
      const TileIndex index = locate(tile, args.m_clusters, args.n_tiles);
      at.row0 = (std::int64_t{index.m_cluster} * args.multicast + m_rank) * kBlockM;
      at.column0 = index.n_tile * out_n;
      const std::uint32_t bias_pair = load_bias_pair<T, kBlockN>(args.epilogue, at.column0);

      float acc[L::kSubtiles][kBlockN / 2];
      // A parity tells a stage's phase only from the one before: the other consumer must have seen all of its own.
      if (kPingpong && tile != first_tile) ptx::named_barrier_sync(kTurnBarrier + consumer, 2 * 128);
      int previous = -1;
      for (int step = 0; step < steps; ++step, advance()) {
        const std::uint32_t a = base + stage * L::kStageBytes + (kPingpong ? 0 : consumer * 64 * kRowBytes);
        const std::uint64_t descriptor_b = ptx::wgmma_descriptor_128b(base + stage * L::kStageBytes + L::kABytes);
        ptx::mbarrier_wait(full + stage * 8, parity);
        ptx::wgmma_fence();
#pragma unroll
        for (int sub = 0; sub < L::kSubtiles; ++sub) {
          const std::uint64_t descriptor_a = ptx::wgmma_descriptor_128b(a + sub * 64 * kRowBytes);
#pragma unroll
          for (int i = 0; i < kBlockK / 16; ++i)
            ptx::Wgmma<T, kBlockN>::run(acc[sub], descriptor_a + 2 * i, descriptor_b + 2 * i, step + i > 0);
        }
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();
        if (previous >= 0) release(previous);
        previous = stage;
      }
      // The residual's steps: landed[i] is the stage of the i-th. In ping-pong they belong to the turn, whose end says
      // that all phases of the tile have been seen.
      int landed[kMaxResidualStages] = {};
      const auto wait_for_residual = [&] {
#pragma unroll
        for (int i = 0; i < kMaxResidualStages; ++i) {
          if (i >= residual_stages) break;
          ptx::mbarrier_wait(full + stage * 8, parity);
          landed[i] = stage;
          advance();
        }
      };
      if (kPingpong) wait_for_residual();
      if (kPingpong && tile + tile_stride < tiles) ptx::named_barrier_arrive(kTurnBarrier + 1 - consumer, 2 * 128);
      ptx::wgmma_wait<0>();
#pragma unroll
      for (auto& subtile : acc)
#pragma unroll
        for (float& x : subtile) ptx::wgmma_pin(x);
      release(previous);
      if (kPingpong)
        skip_tile();
      else
        wait_for_residual();

      write_bias_pair<kBlockN>(bias_pair, bias);
      if (args.splits > 1) {
        if constexpr (L::kCanSplit) {
          ptx::cluster_arrive_relaxed();
          ptx::named_barrier_sync(1, kShape.consumers * 128);  // all consumers have read the last stage
          write_partial<kBlockN>(acc[0], reinterpret_cast<float*>(aligned));
          ptx::fence_proxy_async_shared();
          ptx::named_barrier_sync(1, kShape.consumers * 128);
          ptx::cluster_wait();  // the other blocks' stages are free to receive
          const auto peer = static_cast<int>(threadIdx.x);
          if (peer < args.splits && peer != split) {
            const std::uint32_t there = base + kPartialBytes<kBlockM, kBlockN> + split * share_bytes;
            const auto block = static_cast<std::uint32_t>(m_rank + peer * args.multicast);
            ptx::bulk_copy_to_cluster(ptx::map_to_rank(there, block), base + peer * share_bytes,
                                      static_cast<std::uint32_t>(share_bytes), ptx::map_to_rank(received, block));
          }
          __syncwarp();
          ptx::mbarrier_wait(received, 0);
          const auto* partial = reinterpret_cast<const float*>(aligned);
          const Partials partials{partial, partial + kBlockM * kPartialStride<kBlockN>, split, args.splits,
                                  share_bytes / 4};
          const auto* share_residual = reinterpret_cast<const T*>(aligned + store_offset);
          reduce_and_store<T, kBlockM, kBlockN>(partials, bias, share_residual, args.epilogue, args.d, at);
        }
      } else {
        const auto store = [&]<Finish kFinish>() {
#pragma unroll
          for (int sub = 0; sub < L::kSubtiles; ++sub) {
            const int row_block = kPingpong ? sub : consumer;
            const TilePosition mine{at.row0 + row_block * 64, at.rows, at.column0, at.columns};
            const HeldResidual held{{base + landed[0] * L::kStageBytes, base + landed[1] * L::kStageBytes}, row_block};
            const auto read = [&](int which) {
              if (sub + 1 == L::kSubtiles) release(landed[which]);
            };
            store_accumulator<T, kBlockN, kFinish, kShape.consumers>(acc[sub], bias, args.epilogue, map_d, staging,
                                                                     1 + consumer, buffer, mine, held, read);
          }
        };
        if (gated)
          store.template operator()<Finish::gate>();
        else if (args.epilogue.act != Activation::none)
          store.template operator()<Finish::activate>();
        else if (residual)
          store.template operator()<Finish::add>();
        else
          store.template operator()<Finish::linear>();
      }
    }
    if (threadIdx.x % 128 == 0) ptx::tma_store_wait_read<0>();
    __syncwarp();
    // No block leaves while another may write its stages, arrive on its barriers or read its partial sums.
    __syncwarp();
    if (cluster > 1) ptx::cluster_meet();
  }
}

template <class T, int kTile>
Status launch_tile(const Problem& problem, DType dtype, const Tensors& tensors, const Schedule& schedule,
                   const LaunchContext& context) {
  using L = Layout<kTile>;
  CUtensorMap map_a;
  CUtensorMap map_b;
  if (const Status status =
          encode_tensor_map(map_a, {dtype, tensors.a, problem.m, problem.k, L::kShape.block_m(), kBlockK});
      !status.ok())
    return status;
  if (const Status status =
          encode_tensor_map(map_b, {dtype, tensors.b, problem.b_rows(), problem.k, L::kShape.block_n / 2, kBlockK});
      !status.ok())
    return status;
  const int tile_columns = problem.gated() ? L::kShape.block_n / 2 : L::kShape.block_n;
  CUtensorMap map_d;
  if (const Status status = encode_tensor_map(map_d, {dtype, tensors.d, problem.m, problem.n, 64,
                                                      store_columns(tile_columns), store_swizzled(tile_columns)});
      !status.ok())
    return status;
  // Where the tile is split, a block reads the residual of its share of rows only, all columns of it at once.
  CUtensorMap map_residual = map_d;
  if (problem.residual) {
    const MatrixMap whole{dtype,
                          tensors.residual,
                          problem.m,
                          problem.n,
                          L::kShape.block_m(),
                          store_columns(tile_columns),
                          store_swizzled(tile_columns)};
    const MatrixMap share{
        dtype, tensors.residual, problem.m, problem.n, L::kShape.block_m() / schedule.splits, tile_columns, false};
    if (const Status status = encode_tensor_map(map_residual, schedule.splits > 1 ? share : whole); !status.ok())
      return status;
  }
  const int second_half = problem.gated() ? static_cast<int>(problem.n) : L::kShape.block_n / 2;
  const Arguments<T> arguments{Epilogue<T>(problem, tensors),
                               static_cast<T*>(tensors.d),
                               static_cast<int>(problem.m),
                               static_cast<int>(problem.n),
                               static_cast<int>((problem.k + kBlockK - 1) / kBlockK),
                               static_cast<int>(schedule.m_clusters),
                               static_cast<int>(schedule.n_tiles),
                               second_half,
                               schedule.stages,
                               schedule.multicast,
                               schedule.splits};

  const LaunchShape shape{.grid = static_cast<unsigned>(schedule.grid),
                          .block = L::kThreads,
                          .shared_bytes = static_cast<std::size_t>(L::bytes(schedule.stages)),
                          .shared_limit = static_cast<std::size_t>(L::bytes(L::kShape.deep_stages)),
                          .cluster = static_cast<unsigned>(schedule.cluster()),
                          .programmatic = context.programmatic_launch};
  return launch_kernel("gemm_ptx_sm90a", gemm_ptx_sm90a<T, kTile>, shape, context.stream, map_a, map_b, map_d,
                       map_residual, arguments);
}

template <class T, int... kTile>
Status launch_any(const Problem& problem, DType dtype, const Tensors& tensors, const Schedule& schedule,
                  const LaunchContext& context, std::integer_sequence<int, kTile...>) {
  Status status = failure(StatusCode::invalid_argument, "no such tile");
  (void)((schedule.tile == kTile ? (status = launch_tile<T, kTile>(problem, dtype, tensors, schedule, context), true)
                                 : false) ||
         ...);
  return status;
}

}  // namespace

Status launch_ptx_sm90a_scheduled(const Problem& problem, DType dtype, const Tensors& tensors, const Schedule& schedule,
                                  const LaunchContext& context) {
  if (const Status status = check_pointers(problem, tensors); !status.ok()) return status;
  constexpr std::make_integer_sequence<int, static_cast<int>(kTiles.size())> all{};
  return with_half_type(
      dtype, [&](auto type) { return launch_any<decltype(type)>(problem, dtype, tensors, schedule, context, all); });
}

Status launch_ptx_sm90a(const Problem& problem, DType dtype, const Tensors& tensors, const Scratch&,
                        const LaunchContext& context) {
  return launch_ptx_sm90a_scheduled(problem, dtype, tensors, choose(problem, context.device->sm_count), context);
}

}  // namespace noisefloor::gemm
