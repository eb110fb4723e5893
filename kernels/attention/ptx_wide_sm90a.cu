// attention of heads wider than 256, up to 512, with Hopper's own instructions. A block takes 64 queries of one head
// past all keys or a share of them, 128 at a time: two consumer warpgroups halve the keys in the first product, and the
// output's columns in the second (ptx_wide_sm90a_tile.cuh). A pair of blocks with neighbouring queries loads every key
// and value once, a half each, by multicast; a producer warp in each keeps 8 pieces of 16 KiB in flight, keys and
// values in the order in which they are multiplied. Logits of the next tile are issued before this tile's weights meet
// their values, so that the next softmax runs under these. Shares of the keys are merged by a second launch.
//
// Better than tensor_core_sm80: wgmma has twice the rate of mma.sync, logits are computed once and not for each half of
// the columns, and 64 queries of two SMs share what is loaded.
// Requires: bf16 or fp16, head size a multiple of 8 above 256, contiguous heads, fewer than 2^30 queries of all heads.
// Bound: tensor cores; expected limiter: shared memory, 5,500 cycles of it for 4,096 of products.
// Numerics: as ptx_sm90a.cu, but the sums of two consumers' and several shares' weights are added in a fixed order.
// Source: original; the order of the two products after FlashAttention-3 (arXiv:2407.08608).
#include "kernels/attention/attention.h"
#include "kernels/attention/ptx_merge_sm90a.cuh"
#include "kernels/attention/ptx_sm90a_maps.cuh"
#include "kernels/attention/ptx_wide_sm90a_tile.cuh"
#include "kernels/attention/schedule.h"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/ptx/elect.cuh"
#include "kernels/ptx/setmaxnreg.cuh"

namespace noisefloor::attention {
namespace wide {
namespace {

// What a block computes: queries from `first` on, `tiles` tiles of keys from `first_tile` on.
struct Work {
  int rank, first, split, head, batch, first_tile, tiles;

  __device__ __forceinline__ explicit Work(const Arguments& args) : rank(static_cast<int>(ptx::cluster_rank())) {
    const int pairs = (args.seq_q + kPair * kRows - 1) / (kPair * kRows);
    int cluster = static_cast<int>(ptx::cluster_index());
    first = (cluster % pairs * kPair + rank) * kRows;
    cluster /= pairs;
    split = cluster % args.sharing.splits;
    cluster /= args.sharing.splits;
    head = cluster % args.heads;
    batch = cluster / args.heads;
    const int all = (args.seq_kv + kKeys - 1) / kKeys;
    first_tile = all * split / args.sharing.splits;
    tiles = all * (split + 1) / args.sharing.splits - first_tile;
  }
};

// The producer, an elected thread: fills all stages with keys or values of a tile, in the order keys 0, keys 1, values
// 0, keys 2, values 1, ..., the last values, in which consume() takes them.
__device__ __forceinline__ void produce(const Maps& maps, const Places& places, const Work& work) {
  constexpr std::uint16_t kBoth = (1u << kPair) - 1;
  ptx::mbarrier_arrive_expect_tx(places.query_barrier, kQueryBytes);
#pragma unroll 1
  for (int box = 0; box < boxes_of(kDim); ++box)
    ptx::tma_load_4d(places.queries + box * kQueryBox, &maps.q, places.query_barrier, box * kBoxColumns, work.head,
                     work.first, work.batch);
  const auto first_key = [&](int i) {  // of the i-th tile: the last one first, since it alone may be ragged
    return (work.first_tile + (i == 0 ? work.tiles - 1 : i - 1)) * kKeys;
  };
  const auto take_stage = [&](int piece, std::uint32_t parity) {
    ptx::mbarrier_wait(places.empty + piece * 8, parity);
    ptx::mbarrier_arrive_expect_tx(places.full + piece * 8, kPieceBytes);
    return places.pieces + static_cast<std::uint32_t>(piece * kPieceBytes + work.rank * kHalfPiece);
  };
  const auto load_keys = [&](int i, std::uint32_t parity) {
#pragma unroll 1
    for (int piece = 0; piece < kPieces; ++piece) {
      const std::uint32_t to = take_stage(piece, parity);
      ptx::tma_load_4d_multicast(to, &maps.k, places.full + piece * 8, piece * kBoxColumns, work.head,
                                 first_key(i) + work.rank * kOwnKeys, work.batch, kBoth);
    }
  };
  const auto load_values = [&](int i, std::uint32_t parity) {
#pragma unroll 1
    for (int piece = 0; piece < kPieces; ++piece) {
      const std::uint32_t to = take_stage(piece, parity);
#pragma unroll
      for (int box = 0; box < kHalfPiece / kValueBox; ++box)
        ptx::tma_load_4d_multicast(to + box * kValueBox, &maps.v, places.full + piece * 8,
                                   work.rank * kColumns + box * kBoxColumns, work.head,
                                   first_key(i) + piece * kPieceValues, work.batch, kBoth);
    }
  };
  // Fill f waits for the release of fill f - 1: the parity of f + 1, which for f = 0 is that of no phase yet.
  load_keys(0, 1);
#pragma unroll 1
  for (int i = 1; i < work.tiles; ++i) {
    load_keys(i, 0);
    load_values(i - 1, 1);
  }
  load_values(work.tiles - 1, 0);
  // The pair's arrivals are relaxed: this block stays until all have come (product::await_stages). Behind them nothing
  // is under way to its shared memory, and its own loads have come to the other's.
#pragma unroll 1
  for (int piece = 0; piece < kPieces; ++piece) ptx::mbarrier_wait(places.empty + piece * 8, 1);
}

template <class T>
__device__ __forceinline__ void consume(const Maps& maps, const Arguments& args, const Places& places, const Work& work,
                                        int consumer) {
  const Pieces pieces(places);
  float o[kColumns / 2], s[kOwnKeys / 2];
  RowState state;
  float rescale[2];
  const auto weights_of = [&](int i) { return places.weights + static_cast<std::uint32_t>(i % 2 * kWeightBytes); };

  ptx::mbarrier_wait(places.query_barrier, 0);
  issue_logits<T>(s, places, consumer, pieces, 0);
  pieces.drain();
  pin(s);
  mask_keys(s, args.seq_kv - (work.first_tile + work.tiles - 1) * kKeys - consumer * kOwnKeys);
  softmax<T, true>(s, places, pieces, weights_of(0), consumer, args.scale_log2, state, rescale);

  // Nothing is in flight where it begins and ends. (Were the next logits issued ahead of the end of the values'
  // product, ptxas would serialize all products: sums are multiplied between.)
#pragma unroll 1
  for (int i = 1; i < work.tiles; ++i) {
    issue_logits<T>(s, places, consumer, pieces, 1);
    meet_consumers(kWeightsBarrier);
    issue_values<T>(o, places, weights_of(i - 1), consumer, pieces, 0, i > 1, true);
    pin(s);  // done: of what was in flight behind the last piece, the values' are the newest kInFlight
    softmax<T, false>(s, places, pieces, weights_of(i), consumer, args.scale_log2, state, rescale);
    pieces.settle<1>(), pieces.settle<0>();
    pin(o);
    if (__any_sync(0xffffffffu, rescale[0] != 1.0f || rescale[1] != 1.0f)) scale_rows(o, rescale);
  }
  ptx::griddepcontrol_launch_dependents();  // not sooner, as in product::let_next_launch_start
  meet_consumers(kWeightsBarrier);
  issue_values<T>(o, places, weights_of(work.tiles - 1), consumer, pieces, 1, work.tiles > 1, false);
  pieces.drain();
  pin(o);

  add_sums(places, consumer, state);
  const std::int64_t row = (std::int64_t{work.batch} * args.heads + work.head) * args.seq_q;  // of query 0
  if (args.sharing.splits > 1) {
    leave_sums(o, state, args, consumer, work.first, row, work.split);
    return;
  }
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) % 128 / 32;
  float inverse[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    inverse[half] = 1.0f / state.sum[half];
    const int query = work.first + 16 * warp + 8 * half + lane / 4;
    if (args.lse != nullptr && consumer == 0 && lane % 4 == 0 && query < args.seq_q)
      args.lse[row + query] = state.shift[half] * kLn2 + __logf(state.sum[half]);
  }
  scale_rows(o, inverse);
  // Both consumers' products of queries were done before their last weights met.
  store_rows<T, kColumns>(o, &maps.out, places.queries + consumer * (kColumns / kBoxColumns) * kQueryBox, kQueryBox,
                          consumer * kColumns, work.first, work.head, work.batch,
                          kOwnBarrier + static_cast<std::uint32_t>(consumer));
}

template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    attention_ptx_wide_sm90a(const __grid_constant__ Maps maps, const __grid_constant__ Arguments args) {
  extern __shared__ std::uint8_t raw[];
  const Places places(ptx::shared_address(raw));
  const Work work(args);
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0), warpgroup = warp / 4;
  if (threadIdx.x == 0) {
    ptx::prefetch_tensor_map(&maps.q);
    ptx::prefetch_tensor_map(&maps.k);
    ptx::prefetch_tensor_map(&maps.v);
    ptx::mbarrier_init(places.query_barrier, 1);
    for (int piece = 0; piece < kPieces; ++piece) {
      ptx::mbarrier_init(places.full + piece * 8, 1);
      ptx::mbarrier_init(places.empty + piece * 8, kPair * kConsumers * 4);  // one arrival per warp
    }
    ptx::fence_mbarrier_init();
  }
  __syncwarp();
  ptx::cluster_meet();  // the barriers are ready in both blocks
  ptx::griddepcontrol_wait();

  if (warpgroup == kConsumers) {
    ptx::setmaxnreg_dec<kProducerRegisters>();
    if (warp == kConsumers * 4 && ptx::elect_one()) produce(maps, places, work);
  } else {
    ptx::setmaxnreg_inc<kConsumerRegisters>();
    consume<T>(maps, args, places, work, warpgroup);
  }
}

template <class T>
Status launch_split(const Problem& p, DType dtype, const Tensors& t, int splits, void* workspace,
                    const LaunchContext& context) {
  Maps maps;
  static_assert(kRows == 64);
  if (const Status s = encode_maps(maps, dtype, p.shape(), t, kRows, kOwnKeys, kPieceValues); !s.ok()) return s;
  Arguments arguments = make_arguments(p, t, {.splits = splits});
  arguments.rows = p.batch * p.heads * p.seq_q;
  arguments.sums = static_cast<float*>(workspace);
  if (splits > 1) arguments.states = reinterpret_cast<float2*>(arguments.sums + splits * arguments.rows * p.dim);
  const LaunchShape launch{.grid = static_cast<unsigned>(wide_blocks(p) * splits),
                           .block = kThreads,
                           .shared_bytes = kSharedBytes,
                           .shared_limit = kSharedBytes,
                           .cluster = kPair,
                           .programmatic = context.programmatic_launch};
  const Status status =
      launch_kernel("attention_ptx_wide_sm90a", attention_ptx_wide_sm90a<T>, launch, context.stream, maps, arguments);
  if (!status.ok() || splits == 1) return status;
  const std::int64_t items = arguments.rows * (p.dim / 8);
  const LaunchShape merge{.grid = static_cast<unsigned>((items + kMergeThreads - 1) / kMergeThreads),
                          .block = kMergeThreads,
                          .programmatic = true};
  return launch_kernel("attention_ptx_wide_merge_sm90a", attention_ptx_wide_merge_sm90a<T>, merge, context.stream,
                       arguments);
}

}  // namespace
}  // namespace wide

Status launch_ptx_wide_sm90a(const Problem& p, DType dtype, const Tensors& t, const Scratch& scratch,
                             const LaunchContext& context) {
  if (const Status status = check_pointers(p, t); !status.ok()) return status;
  const int sms = context.device->sm_count;
  const auto splits = context.choice.empty() ? wide_splits(p, sms).front() : parse_wide_splits(p, context.choice, sms);
  if (!splits) return failure(StatusCode::invalid_argument, "attention: no such number of splits");
  if (*splits > 1 && scratch.workspace == nullptr)
    return failure(StatusCode::invalid_argument, "attention: no workspace");
  return with_half_type(
      dtype, [&]<class T>(T) { return wide::launch_split<T>(p, dtype, t, *splits, scratch.workspace, context); });
}

}  // namespace noisefloor::attention
