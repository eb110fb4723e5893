// attention with Hopper's own instructions: a block takes 128 queries of one head past all keys. A producer thread
// keeps two tiles of keys and two of values in flight (TMA, mbarriers). Two consumer warpgroups of 64 queries each
// issue, per tile, the next logits and then the product of the present weights with their values, and compute the next
// softmax while the latter runs. They take turns at issuing (named barriers), so that the tensor cores have one's
// products while the other computes exponentials. Weights go from accumulators to the A operand in registers.
//
// Better than tensor_core_sm80: wgmma has twice the rate of mma.sync, no thread computes an address or waits for a
// copy, and exponentials overlap with products, within a warpgroup and between the two.
//
// Requires: bf16 or fp16, head size a multiple of 8, contiguous heads, fewer than 2^31 blocks.
// Bound: at head size 64, products and exponentials alike; expected limiter: what of the softmax does not overlap.
// Numerics: fp32 sums in wgmma, exponentials by ex2.approx, weights rounded to 16 bits for the second product (their
// sum is of the unrounded ones).
// Source: Shah et al., "FlashAttention-3" (arXiv:2407.08608), for the overlap; PTX ISA.
#include "kernels/attention/launchers.h"
#include "kernels/attention/ptx_sm90a_maps.cuh"
#include "kernels/attention/ptx_sm90a_tile.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/ptx/griddepcontrol.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/ring.cuh"
#include "kernels/ptx/setmaxnreg.cuh"

namespace noisefloor::attention {
namespace {

constexpr int kConsumers = 2;
constexpr int kThreads = (kConsumers + 1) * 128;
constexpr int kStages = 2;
constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;
static_assert(128 * (kProducerRegisters + kConsumers * kConsumerRegisters) <= 65536, "an SM's registers");

template <int kHeadDim, int kKeyBlock>
struct Block {
  static constexpr int kDim = kHeadDim, kKeys = kKeyBlock;
  static constexpr int kQueryBox = kConsumers * 64 * kBoxRowBytes;
  static constexpr int kQueryBytes = kQueryBox * boxes_of(kDim);
  static constexpr int kTileBytes = kKeys * kBoxRowBytes * boxes_of(kDim);
  static constexpr int kBarriers = 1 + 4 * kStages;
  static constexpr int kBytes = kSwizzleAtom + kQueryBytes + 2 * kStages * kTileBytes + kBarriers * 8;
  static_assert(kTileBytes % kSwizzleAtom == 0 && kBytes <= 227 * 1024, "a block's shared memory");
  // A consumer's registers: logits, packed weights and sums (64, 32 and 32 at head size 64; 32, 16 and 128 at 256).
  static_assert(kKeys / 2 + kKeys / 4 + kDim / 2 < kConsumerRegisters);
};

template <class T, class B>
__global__ void __launch_bounds__(kThreads, 1)
    attention_ptx_sm90a(const __grid_constant__ Maps maps, const __grid_constant__ Arguments args) {
  constexpr int kDim = B::kDim, kKeys = B::kKeys;
  extern __shared__ std::uint8_t raw[];
  const std::uint32_t queries = (ptx::shared_address(raw) + kSwizzleAtom - 1) / kSwizzleAtom * kSwizzleAtom;
  const std::uint32_t keys = queries + B::kQueryBytes;
  const std::uint32_t values = keys + kStages * B::kTileBytes;
  const std::uint32_t query_barrier = values + kStages * B::kTileBytes;
  const std::uint32_t keys_full = query_barrier + 8, keys_empty = keys_full + kStages * 8;
  const std::uint32_t values_full = keys_empty + kStages * 8, values_empty = values_full + kStages * 8;

  const int blocks = (args.seq_q + kConsumers * 64 - 1) / (kConsumers * 64);
  const int first = static_cast<int>(blockIdx.x) % blocks * (kConsumers * 64);
  const int head = static_cast<int>(blockIdx.x) / blocks % args.heads;
  const int batch = static_cast<int>(blockIdx.x) / blocks / args.heads;
  const int tiles = (args.seq_kv + kKeys - 1) / kKeys;
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;

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
  ptx::griddepcontrol_launch_dependents();

  if (warpgroup == 0) {
    ptx::setmaxnreg_dec<kProducerRegisters>();
    if (threadIdx.x == 0) {
      const auto load = [&](const CUtensorMap* map, std::uint32_t to, std::uint32_t full, int tile) {
        ptx::mbarrier_arrive_expect_tx(full, B::kTileBytes);
#pragma unroll
        for (int box = 0; box < boxes_of(kDim); ++box)
          ptx::tma_load_4d(to + box * (kKeys * kBoxRowBytes), map, full, box * kBoxColumns, head, tile * kKeys, batch);
      };
      ptx::mbarrier_arrive_expect_tx(query_barrier, B::kQueryBytes);
#pragma unroll
      for (int box = 0; box < boxes_of(kDim); ++box)
        ptx::tma_load_4d(queries + box * B::kQueryBox, &maps.q, query_barrier, box * kBoxColumns, head, first, batch);
      ptx::Ring ring;
      for (int tile = 0; tile < tiles; ++tile, ring.advance(kStages)) {
        ptx::mbarrier_wait(keys_empty + ring.stage * 8, ring.parity ^ 1);
        load(&maps.k, keys + ring.stage * B::kTileBytes, keys_full + ring.stage * 8, tile);
        ptx::mbarrier_wait(values_empty + ring.stage * 8, ring.parity ^ 1);
        load(&maps.v, values + ring.stage * B::kTileBytes, values_full + ring.stage * 8, tile);
      }
    }
  } else {
    ptx::setmaxnreg_inc<kConsumerRegisters>();
    const int consumer = warpgroup - 1;
    const std::uint32_t mine = queries + static_cast<std::uint32_t>(consumer * 64 * kBoxRowBytes);
    const auto release = [&](std::uint32_t empty) {
      if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(empty);
    };
    constexpr std::uint32_t kTurn = 1;  // hardware barriers 1 and 2: whose turn it is to issue; 3 and 4: own
    const auto take_turn = [&] { ptx::named_barrier_sync(kTurn + consumer, kConsumers * 128); };
    const auto give_turn = [&] { ptx::named_barrier_arrive(kTurn + 1 - consumer, kConsumers * 128); };

    float o[kDim / 2], s[kKeys / 2];
    std::uint32_t p[kKeys / 16][4];
    RowState state;
    float rescale[2];
    ptx::Ring key, value;

    ptx::mbarrier_wait(query_barrier, 0);
    ptx::mbarrier_wait(keys_full, 0);
    ptx::wgmma_fence();
    issue_logits<T, kDim, kKeys>(s, mine, B::kQueryBox, keys);
    ptx::wgmma_commit();
    if (consumer == 1) give_turn();
    ptx::wgmma_wait<0>();
    pin(s);
    release(keys_empty);
    key.advance(kStages);
    softmax<true>(s, min(args.seq_kv, kKeys), args.scale_log2, state, rescale);
    pack_weights<T>(s, p);

    for (int tile = 1; tile < tiles; ++tile) {
      ptx::mbarrier_wait(keys_full + key.stage * 8, key.parity);
      ptx::mbarrier_wait(values_full + value.stage * 8, value.parity);  // came before those keys
      take_turn();
      ptx::wgmma_fence();
      issue_logits<T, kDim, kKeys>(s, mine, B::kQueryBox, keys + key.stage * B::kTileBytes);
      ptx::wgmma_commit();
      issue_values<T, kDim, kKeys>(o, p, values + value.stage * B::kTileBytes, tile > 1);
      ptx::wgmma_commit();
      if (consumer == 0 || tile + 1 < tiles) give_turn();
      ptx::wgmma_wait<1>();
      pin(s);
      release(keys_empty + key.stage * 8);
      softmax<false>(s, args.seq_kv - tile * kKeys, args.scale_log2, state, rescale);
      ptx::wgmma_wait<0>();
      pin(o);
      release(values_empty + value.stage * 8);
      scale_rows(o, rescale);
      pack_weights<T>(s, p);
      key.advance(kStages);
      value.advance(kStages);
    }
    ptx::mbarrier_wait(values_full + value.stage * 8, value.parity);
    ptx::wgmma_fence();
    issue_values<T, kDim, kKeys>(o, p, values + value.stage * B::kTileBytes, tiles > 1);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    pin(o);
    finish<T, kDim>(o, state, args, &maps.out, mine, B::kQueryBox, first + consumer * 64, head, batch,
                    static_cast<std::uint32_t>(3 + consumer));
  }
}

template <class T, class B>
Status launch_block(const Problem& problem, DType dtype, const Tensors& t, const LaunchContext& context) {
  return launch_mapped("attention_ptx_sm90a", attention_ptx_sm90a<T, B>, kConsumers * 64, B::kKeys, kThreads, B::kBytes,
                       problem, dtype, t, context);
}

}  // namespace

Status launch_ptx_sm90a(const Problem& problem, DType dtype, const Tensors& t, const Scratch&,
                        const LaunchContext& context) {
  if (const Status status = check_pointers(problem, t); !status.ok()) return status;
  return with_half_type(dtype, [&]<class T>(T) {
    if (problem.dim <= 40) return launch_block<T, Block<40, 128>>(problem, dtype, t, context);
    if (problem.dim <= 64) return launch_block<T, Block<64, 128>>(problem, dtype, t, context);
    if (problem.dim <= 80) return launch_block<T, Block<80, 128>>(problem, dtype, t, context);
    if (problem.dim <= 128) return launch_block<T, Block<128, 128>>(problem, dtype, t, context);
    if (problem.dim <= 160) return launch_block<T, Block<160, 80>>(problem, dtype, t, context);
    return launch_block<T, Block<256, 64>>(problem, dtype, t, context);
  });
}

}  // namespace noisefloor::attention
