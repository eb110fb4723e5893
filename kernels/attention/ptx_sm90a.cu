// attention with Hopper's own instructions: a block takes 128 to 256 queries of one head past all keys. A producer
// keeps tiles of keys and values in flight (TMA, mbarriers). Consumer warpgroups of 64 queries issue the next logits,
// then the product of the present weights with their values, and compute the next softmax while it runs; they may take
// turns. Weights go from accumulators to the A operand in registers. schedule.h has what differs between problems.
//
// Better than tensor_core_sm80: wgmma has twice the rate of mma.sync, no thread computes an address or waits for a
// copy, and exponentials overlap with products, within a warpgroup and between them.
// Requires: bf16 or fp16, head size a multiple of 8, contiguous heads, fewer than 2^31 blocks.
// Bound: at head size 64, products and exponentials alike; expected limiter: what of the softmax does not overlap.
// Numerics: fp32 sums in wgmma, exponentials by ex2.approx, weights of up to 2^8 rounded to 16 bits for the second
// product (their sum is of the unrounded ones). A NaN among a row's logits, or all of them -inf, makes the row NaN.
// Source: Shah et al., "FlashAttention-3" (arXiv:2407.08608), for the overlap; sums rescaled only where the maximum
// rises enough, after FlashAttention-4; PTX ISA.
#include "kernels/attention/attention.h"
#include "kernels/attention/ptx_merge_sm90a.cuh"
#include "kernels/attention/ptx_sm90a_maps.cuh"
#include "kernels/attention/ptx_sm90a_tile.cuh"
#include "kernels/attention/schedule.h"
#include "kernels/device/dispatch.cuh"
#include "kernels/ptx/elect.cuh"
#include "kernels/ptx/griddepcontrol.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/setmaxnreg.cuh"

namespace noisefloor::attention {
namespace {

template <int kTile>
struct Block {
  static constexpr Tile kShape = kTiles[kTile];
  static constexpr int kDim = kShape.dim, kKeys = kShape.keys, kConsumers = kShape.consumers;
  static constexpr int kStages = kShape.stages();
  static constexpr int kQueryBox = kShape.rows() * kBoxRowBytes;
  static constexpr int kQueryBytes = kQueryBox * boxes_of(kDim);
  static constexpr int kTileBytes = kKeys * kBoxRowBytes * boxes_of(kDim);
  static constexpr int kBarriers = 1 + 4 * kStages;
  static constexpr int kBytes = kSwizzleAtom + kQueryBytes + 2 * kStages * kTileBytes + kBarriers * 8;
  static_assert(kTileBytes % kSwizzleAtom == 0 && kBytes <= 228 * 1024 / kShape.blocks - 1024, "an SM's shared memory");
  // A consumer's registers: logits, packed weights and sums.
  static_assert(kKeys / 2 + kKeys / 4 + kDim / 2 < kShape.consumer_registers());
};

template <class T, int kTile, bool kSplit>
__global__ void __launch_bounds__(kTiles[kTile].threads(), kTiles[kTile].blocks)
    attention_ptx_sm90a(const __grid_constant__ Maps maps, const __grid_constant__ Arguments args) {
  using B = Block<kTile>;
  constexpr int kDim = B::kDim, kKeys = B::kKeys, kConsumers = B::kConsumers, kStages = B::kStages;
  extern __shared__ std::uint8_t raw[];
  const std::uint32_t queries = (ptx::shared_address(raw) + kSwizzleAtom - 1) / kSwizzleAtom * kSwizzleAtom;
  const std::uint32_t keys = queries + B::kQueryBytes;
  const std::uint32_t values = keys + kStages * B::kTileBytes;
  const std::uint32_t query_barrier = values + kStages * B::kTileBytes;
  const std::uint32_t keys_full = query_barrier + 8, keys_empty = keys_full + kStages * 8;
  const std::uint32_t values_full = keys_empty + kStages * 8, values_empty = values_full + kStages * 8;

  const int blocks = (args.seq_q + kConsumers * 64 - 1) / (kConsumers * 64);
  int block = static_cast<int>(blockIdx.x);  // of a tile
  bool shared = false;                       // with the cluster's other blocks
  if constexpr (kSplit) {
    const int cluster = static_cast<int>(ptx::cluster_index());
    shared = cluster >= args.sharing.whole;
    if (shared) block = cluster + args.sharing.whole * (args.sharing.splits - 1);
  }
  const int first = block % blocks * (kConsumers * 64);
  const int head = block / blocks % args.heads;
  const int batch = block / blocks / args.heads;
  int first_tile = 0, tiles = (args.seq_kv + kKeys - 1) / kKeys;  // this block's
  if (kSplit && shared) {
    const int rank = static_cast<int>(ptx::cluster_rank()), all = tiles;
    first_tile = all * rank / args.sharing.splits;
    tiles = all * (rank + 1) / args.sharing.splits - first_tile;
  }
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0), warpgroup = warp / 4;

  if (threadIdx.x == 0) {
    ptx::prefetch_tensor_map(&maps.q);
    ptx::prefetch_tensor_map(&maps.k);
    ptx::prefetch_tensor_map(&maps.v);
    ptx::mbarrier_init(query_barrier, 1);
    for (int stage = 0; stage < kStages; ++stage) {
      ptx::mbarrier_init(keys_full + stage * 8, 1);
      ptx::mbarrier_init(values_full + stage * 8, 1);
      ptx::mbarrier_init(keys_empty + stage * 8, kConsumers * 4);  // one arrival per warp
      ptx::mbarrier_init(values_empty + stage * 8, kConsumers * 4);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  ptx::griddepcontrol_wait();

  const auto load = [&](const CUtensorMap* map, std::uint32_t to, std::uint32_t full, int i) {
    const int tile = first_tile + (i == 0 ? tiles - 1 : i - 1);  // the last one first: it alone may be ragged
    const int stage = i % kStages;
    ptx::mbarrier_arrive_expect_tx(full + stage * 8, B::kTileBytes);
#pragma unroll
    for (int box = 0; box < boxes_of(kDim); ++box)
      ptx::tma_load_4d(to + stage * B::kTileBytes + box * (kKeys * kBoxRowBytes), map, full + stage * 8,
                       box * kBoxColumns, head, tile * kKeys, batch);
  };
  const auto load_queries = [&] {
    ptx::mbarrier_arrive_expect_tx(query_barrier, B::kQueryBytes);
#pragma unroll
    for (int box = 0; box < boxes_of(kDim); ++box)
      ptx::tma_load_4d(queries + box * B::kQueryBox, &maps.q, query_barrier, box * kBoxColumns, head, first, batch);
  };
  // Keys and values of the i-th tile, when their stages are free.
  const auto load_keys = [&](int i) {
    ptx::mbarrier_wait(keys_empty + i % kStages * 8, (i / kStages + 1) % 2);
    load(&maps.k, keys, keys_full, i);
  };
  const auto load_values = [&](int i) {
    ptx::mbarrier_wait(values_empty + i % kStages * 8, (i / kStages + 1) % 2);
    load(&maps.v, values, values_full, i);
  };
  if (B::kShape.has_producer() && warpgroup == kConsumers) {
    ptx::setmaxnreg_dec<B::kShape.producer_registers()>();
    if (warp == kConsumers * 4 && ptx::elect_one()) {
      load_queries();
      for (int i = 0; i < tiles; ++i) {
        load_keys(i);
        load_values(i);
      }
    }
    if (kSplit && shared) {
      __syncwarp();
      ptx::cluster_sync();
      ptx::cluster_meet();
    }
  } else {
    if constexpr (B::kShape.has_producer())
      ptx::setmaxnreg_inc<B::kShape.consumer_registers()>();
    else if (warp == 0 && ptx::elect_one()) {
      load_queries();
      for (int i = 0; i < min(tiles, kStages); ++i) {
        load(&maps.k, keys, keys_full, i);
        load(&maps.v, values, values_full, i);
      }
    }
    const int consumer = warpgroup;
    const std::uint32_t mine = queries + static_cast<std::uint32_t>(consumer * 64 * kBoxRowBytes);
    const auto release = [&](std::uint32_t empty) {
      if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(empty);
    };
    constexpr std::uint32_t kOrder = 1;  // hardware barriers: ping-pong's order of issue; behind them, each one's own
    const auto await_order = [&] {
      if (args.sharing.turns) ptx::named_barrier_sync(kOrder + consumer, 256);
    };
    const auto pass_order = [&] {
      if (args.sharing.turns) ptx::named_barrier_arrive(kOrder + (consumer + 1 == kConsumers ? 0 : consumer + 1), 256);
    };
    const bool last_in_order = consumer + 1 == kConsumers;

    float o[kDim / 2], s[kKeys / 2];
    std::uint32_t p[kKeys / 16][4];
    RowState state;
    float rescale[2];
    const auto stage_of = [](int i) { return static_cast<unsigned>(i) % kStages; };  // of the i-th tile
    const auto parity_of = [](int i) { return static_cast<unsigned>(i) / kStages % 2; };

    ptx::mbarrier_wait(query_barrier, 0);
    ptx::mbarrier_wait(keys_full, 0);
    ptx::wgmma_fence();
    issue_logits<T, kDim, kKeys>(s, mine, B::kQueryBox, keys);
    ptx::wgmma_commit();
    if (last_in_order && tiles > 1) pass_order();
    ptx::wgmma_wait<0>();
    pin(s);
    release(keys_empty);
    first_softmax(s, args.seq_kv - (first_tile + tiles - 1) * kKeys, args.scale_log2, state);
    pack_weights<T>(s, p);

    for (int tile = 1; tile < tiles; ++tile) {
      const unsigned key = stage_of(tile), value = stage_of(tile - 1);
      if constexpr (!B::kShape.has_producer())
        if (warp == 0 && ptx::elect_one()) {  // stages that this warpgroup released an iteration ago, the others by now
          if (tile >= 2 && tile - 2 + kStages < tiles) load_keys(tile - 2 + kStages);
          if (tile >= 3 && tile - 3 + kStages < tiles) load_values(tile - 3 + kStages);
        }
      ptx::mbarrier_wait(keys_full + key * 8, parity_of(tile));
      ptx::mbarrier_wait(values_full + value * 8, parity_of(tile - 1));  // came before those keys
      await_order();
      ptx::wgmma_fence();
      issue_logits<T, kDim, kKeys>(s, mine, B::kQueryBox, keys + key * B::kTileBytes);
      ptx::wgmma_commit();
      issue_values<T, kDim, kKeys>(o, p, values + value * B::kTileBytes, tile > 1);
      ptx::wgmma_commit();
      if (!last_in_order || tile + 1 < tiles) pass_order();
      ptx::wgmma_wait<1>();
      pin(s);
      release(keys_empty + key * 8);
      rescale[0] = take_maximum<false>(s, 0, args.scale_log2, state);
      take_weights<false>(s, 0, args.scale_log2, rescale[0], state);
      rescale[1] = take_maximum<false>(s, 1, args.scale_log2, state);
      // This phase is over, and no other begins before this warp releases the stage below: nothing waits. It is for the
      // compiler, which moves no exponential across a loop, and else would put the first row's behind the product. All
      // warps of a warpgroup must take the same wgmma.wait_group, so none stands in the branch of a warp's own vote.
      ptx::mbarrier_wait(values_full + value * 8, parity_of(tile - 1));
      ptx::wgmma_wait<0>();
      pin(o);
      if (__any_sync(0xffffffffu, rescale[0] != 1.0f || rescale[1] != 1.0f)) scale_rows(o, rescale);
      release(values_empty + value * 8);
      pack_weights<T>(s, 0, p);
      take_weights<false>(s, 1, args.scale_log2, rescale[1], state);
      pack_weights<T>(s, 1, p);
    }
    ptx::griddepcontrol_launch_dependents();  // not sooner, as in product::let_next_launch_start
    const unsigned value = stage_of(tiles - 1);
    ptx::mbarrier_wait(values_full + value * 8, parity_of(tiles - 1));
    ptx::wgmma_fence();
    issue_values<T, kDim, kKeys>(o, p, values + value * B::kTileBytes, tiles > 1);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    pin(o);
    if constexpr (kSplit)
      if (shared) {
        static_assert(Partial<kDim, kConsumers * 64>::kBytes <= B::kQueryBytes + 2 * kStages * B::kTileBytes);
        ptx::named_barrier_sync(kOrder + kConsumers, kConsumers * 128);  // nothing there is read any more
        leave_partial<kDim, kConsumers * 64>(o, state, queries, consumer * 64);
        ptx::cluster_sync();
        merge_partials<T, kDim, kConsumers * 64, kConsumers * 128>(queries, args, first, head, batch);
        __syncwarp();
        ptx::cluster_meet();  // other blocks have read this one's
        return;
      }
    finish<T, kDim>(o, state, args, &maps.out, mine, B::kQueryBox, first + consumer * 64, head, batch,
                    static_cast<std::uint32_t>(kOrder + kConsumers + consumer));
  }
}

template <class T, int kTile>
Status launch_tile(const Problem& problem, DType dtype, const Tensors& t, const Schedule& schedule,
                   const LaunchContext& context) {
  constexpr Tile kShape = kTiles[kTile];
  auto* kernel = attention_ptx_sm90a<T, kTile, false>;
  if constexpr (kShape.splits)
    if (schedule.splits > 1) kernel = attention_ptx_sm90a<T, kTile, true>;
  const Grid grid = grid_of(problem, schedule, context.device->sm_count);
  return launch_mapped("attention_ptx_sm90a", kernel, kShape.rows(), kShape.keys, kShape.threads(),
                       Block<kTile>::kBytes, problem, dtype, t, context, grid.blocks,
                       {.turns = schedule.turns, .splits = schedule.splits, .whole = static_cast<int>(grid.whole)});
}

}  // namespace

Status launch_ptx_sm90a(const Problem& problem, DType dtype, const Tensors& t, const Scratch&,
                        const LaunchContext& context) {
  if (const Status status = check_pointers(problem, t); !status.ok()) return status;
  const int sms = context.device->sm_count;
  const auto schedule = context.choice.empty() ? choose(problem, sms) : parse_schedule(problem, context.choice, sms);
  if (!schedule) return failure(StatusCode::invalid_argument, "attention: no such schedule");
  return with_half_type(dtype, [&]<class T>(T) {
    return with_tile<kTiles.size()>(
        schedule->tile, [&]<int kTile>() { return launch_tile<T, kTile>(problem, dtype, t, *schedule, context); });
  });
}

}  // namespace noisefloor::attention
