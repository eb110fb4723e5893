// What a consumer warpgroup of attention_backward's ptx_sm90a does with its 64 rows, step by step of the other
// sequence, and how a block's shared memory and registers are shared out. Device code only.
#pragma once

#include "kernels/attention/ptx_sm90a_tile.cuh"
#include "kernels/attention_backward/terms.cuh"
#include "kernels/ptx/ldmatrix.cuh"
#include "kernels/ptx/mbarrier.cuh"

namespace noisefloor::attention_backward {

using attention::boxes_of;
using attention::kBoxColumns;
using attention::kBoxRowBytes;
using attention::kSwizzleAtom;
using attention::pin;

template <int kHeadDim, Pass kOfPass>
struct Sm90aTile {
  static constexpr int kDim = kHeadDim;
  static constexpr Pass kPass = kOfPass;
  static constexpr bool kByKeys = by_keys(kPass), kGradients = kPass != Pass::values;
  static constexpr bool kTwo = kPass == Pass::keys_and_values;  // sums
  static constexpr int kBlock = kDim > 128 ? 32 : 64;           // rows of the other sequence at a time, by registers
  // Of small heads a block begins and ends under another's products; of large ones two consumers share what is loaded.
  static constexpr int kConsumers = kDim <= 64 ? 1 : 2, kBlocksPerSm = kDim <= 64 ? 2 : 1;
  static constexpr int kOwnRows = 64 * kConsumers, kThreads = 128 * (kConsumers + 1);
  // A consumer holds its own rows in registers where they have room: products of few columns wait for shared memory.
  static constexpr bool kHeld = kDim <= 64;
  static constexpr int kOwnBox = kOwnRows * kBoxRowBytes, kOwnBytes = kOwnBox * boxes_of(kDim);
  static constexpr int kBlockBytes = kBlock * kBoxRowBytes * boxes_of(kDim), kTermBytes = kByKeys ? kBlock * 8 : 0;
  static constexpr int kFixedBytes = kSwizzleAtom + (kGradients ? 2 : 1) * kOwnBytes + 8;
  static constexpr int kStageBytes = 2 * kBlockBytes + kTermBytes, kStages = kDim > 128 ? 3 : 4;
  static constexpr int kBytes = kFixedBytes + kStages * (kStageBytes + 16);
  static_assert(kStages >= 3, "a step's last products are in flight when the next but one needs its logits");
  static_assert(kBlockBytes % kSwizzleAtom == 0 && kBytes <= (228 / kBlocksPerSm - 1) * 1024 &&
                kTermRows % kBlock == 0);
  static constexpr int kLaunchRegisters = 65536 / (kThreads * kBlocksPerSm) / 8 * 8;
  static constexpr int kProducerRegisters = kDim > 128 ? 40 : 24;
  static constexpr int kConsumerRegisters =
      (kLaunchRegisters * (kConsumers + 1) - kProducerRegisters) / kConsumers / 8 * 8;
  // A consumer's: logits, gradients, packed weights, own rows and sums.
  static_assert(kBlock / 2 * (kGradients ? 2 : 1) + kBlock / 4 + (kHeld ? kDim / 2 : 0) + kDim / 2 * (kTwo ? 2 : 1) <
                kConsumerRegisters - 24);
};

struct PassArguments {
  int heads, own_length, other_length;
  std::int64_t head_terms;  // pairs of queries of a head
  float scale, scale_log2;  // of the logits, times log2(e)
  const float4* terms;
};

// Where things are in shared memory.
template <class Tile>
struct Places {
  std::uint32_t own, stages, terms, own_barrier, full, empty;
  __device__ __forceinline__ explicit Places(const void* raw)
      : own((ptx::shared_address(raw) + kSwizzleAtom - 1) / kSwizzleAtom * kSwizzleAtom),
        stages(own + (Tile::kGradients ? 2 : 1) * Tile::kOwnBytes),
        terms(stages + Tile::kStages * 2 * Tile::kBlockBytes),
        own_barrier(terms + Tile::kStages * Tile::kTermBytes),
        full(own_barrier + 8),
        empty(full + Tile::kStages * 8) {}
  __device__ __forceinline__ std::uint32_t block(int stage, int which) const {
    return stages + static_cast<std::uint32_t>((2 * stage + which) * Tile::kBlockBytes);
  }
};

// A consumer's part of the block, and what it takes to the next step.
template <class T, class Tile>
struct Consumer {
  static constexpr int kDim = Tile::kDim, kBlock = Tile::kBlock, kCount = kBlock / 2, kSteps = kDim / 16;

  const Places<Tile>& at;
  const PassArguments& args;
  std::uint32_t own;    // of its 64 rows, in box 0
  const float2* terms;  // by keys: of this thread's first two columns in stage 0
  float rows[2][2];     // by queries: lse log2(e) and delta of this thread's two rows

  float s[kCount];                                      // logits, then weights
  float g[Tile::kGradients ? kCount : 1];               // the weights' gradients, then the logits' by the scale
  std::uint32_t held[Tile::kHeld ? 2 * kSteps : 1][4];  // the own rows
  std::uint32_t packed[kCount / 8][4];                  // what the products under way begin with
  float sums[kDim / 2];                                 // for dQ, dK, or dV alone
  float value_sums[Tile::kTwo ? kDim / 2 : 1];          // for dV
  int stage = 0;                                        // of this step's block
  std::uint32_t parity = 0;

  __device__ __forceinline__ void hold() {
    const int lane = static_cast<int>(threadIdx.x) % 32,
              row = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane % 16;
#pragma unroll
    for (int i = 0; i < 2 * kSteps; ++i) {
      const int chunk = i % kSteps * 2 + lane / 16;
      ptx::ldmatrix_x4(held[i],
                       own + static_cast<std::uint32_t>(i / kSteps * Tile::kOwnBytes + chunk / 8 * Tile::kOwnBox +
                                                        row * kBoxRowBytes + ((chunk % 8) ^ (row % 8)) * 16));
    }
  }
  // to = the own rows of that tensor times a block's.
  template <int kWhich>
  __device__ __forceinline__ void issue_own(float (&to)[kCount], int of) {
    const std::uint32_t block = at.block(of, kWhich);
    if constexpr (Tile::kHeld) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step)
        ptx::Wgmma<T, kBlock>::run(
            to, held[kWhich * kSteps + step],
            ptx::wgmma_descriptor_128b(block + step / 4 * (kBlock * kBoxRowBytes)) + 2 * (step % 4), step > 0);
    } else {
      attention::issue_logits<T, kDim, kBlock>(to, own + kWhich * Tile::kOwnBytes, Tile::kOwnBox, block);
    }
    ptx::wgmma_commit();
  }
  __device__ __forceinline__ void issue_products(float (&to)[kDim / 2], int which, bool add) {
    attention::issue_values<T, kDim, kBlock>(to, packed, at.block(stage, which), add);
    ptx::wgmma_commit();
  }
  static __device__ __forceinline__ int before(int of) {
    return of == 0 ? Tile::kStages - 1 : of - 1;
  }
  static __device__ __forceinline__ int after(int of) {
    return of == Tile::kStages - 1 ? 0 : of + 1;
  }
  __device__ __forceinline__ void release(int of) {
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(at.empty + of * 8);
  }

  // Calls body(i, the lse or, with kTerm 1, the delta that belongs to logit i).
  template <int kTerm, class Body>
  __device__ __forceinline__ void each_logit(const Body& body) {
    const float2* const columns = terms + stage * (Tile::kTermBytes / 8) + kTerm;
#pragma unroll
    for (int n = 0; n < kCount / 4; ++n) {
      const float2 of = Tile::kByKeys ? columns[8 * n] : float2{};
#pragma unroll
      for (int i = 0; i < 4; ++i) body(4 * n + i, !Tile::kByKeys ? rows[kTerm][i / 2] : i % 2 ? of.y : of.x);
    }
  }
  // Turns logits into weights. `left`: columns that exist.
  __device__ __forceinline__ void take_weights(int left) {
    if constexpr (!Tile::kByKeys) attention::mask_keys(s, left);  // of keys that do not exist
    each_logit<0>([&](int i, float lse) { s[i] = ptx::exp2_approx(fmaf(s[i], args.scale_log2, -lse)); });
    pin(s);
  }
  __device__ __forceinline__ void take_gradients() {
    each_logit<1>([&](int i, float delta) { g[i] = s[i] * (g[i] - delta); });
    pin(g);
  }

  // Weights and gradients of this step's block, whose first products are under way, with kOlder groups of products. At
  // the end the next block is here. Of one sum, products are still under way; of two, none is: a loop that they cross
  // would need `packed` twice.
  template <int kOlder>
  __device__ __forceinline__ void take(int left, bool first, bool last) {
    ptx::wgmma_wait<kOlder + (Tile::kGradients ? 1 : 0)>();
    pin(s);
    take_weights(left);
    // This phase is over, nothing waits. It is for the compiler, which moves no exponential across a loop, and else
    // would put them behind the products.
    ptx::mbarrier_wait(at.full + stage * 8, parity);
    if constexpr (Tile::kTwo) {
      ptx::wgmma_wait<1>();  // the older products
      if (!first) release(before(stage));
      attention::pack_weights<T>(s, packed);
      ptx::wgmma_fence();
      issue_products(value_sums, 1, !first);
    }
    if constexpr (Tile::kGradients) {
      ptx::wgmma_wait<Tile::kTwo ? 1 : kOlder>();
      pin(g);
      take_gradients();
    }
    if (!last) ptx::mbarrier_wait(at.full + after(stage) * 8, after(stage) == 0 ? parity ^ 1 : parity);
    if constexpr (Tile::kTwo) ptx::wgmma_wait<0>();
  }

  __device__ __forceinline__ void begin(int left, bool last) {
    ptx::mbarrier_wait(at.own_barrier, 0);
    if constexpr (Tile::kHeld) hold();
    ptx::mbarrier_wait(at.full, 0);
    ptx::wgmma_fence();
    issue_own<0>(s, 0);
    if constexpr (Tile::kGradients) issue_own<1>(g, 0);
    take<0>(left, true, last);
  }

  // From the weights and gradients of a block to those of the next. The next logits go first, so that tensor cores have
  // work while this warpgroup computes.
  __device__ __forceinline__ void advance(int i, bool last) {
    const int now = stage, next = after(stage);
    if (next == 0) parity ^= 1;
    if constexpr (!Tile::kGradients) {
      ptx::wgmma_wait<0>();
      if (i > 1) release(before(now));
      attention::pack_weights<T>(s, packed);
    }
    ptx::wgmma_fence();
    issue_own<0>(s, next);
    if constexpr (Tile::kGradients) {
      if constexpr (!Tile::kTwo) {
        ptx::wgmma_wait<1>();  // what begins with `packed`
        if (i > 1) release(before(now));
      }
      attention::pack_weights<T>(g, packed);
      ptx::wgmma_fence();
    }
    if constexpr (Tile::kGradients && !Tile::kTwo) issue_own<1>(g, next);
    issue_products(sums, Tile::kGradients ? 0 : 1, i > 1);
    if constexpr (Tile::kTwo) issue_own<1>(g, next);
    stage = next;
    take<1>(kBlock, false, last);
  }

  __device__ __forceinline__ void end(bool add) {
    ptx::wgmma_wait<0>();
    if constexpr (Tile::kGradients)
      attention::pack_weights<T>(g, packed);
    else
      attention::pack_weights<T>(s, packed);
    ptx::wgmma_fence();
    issue_products(sums, Tile::kGradients ? 0 : 1, add);
    ptx::wgmma_wait<0>();
    pin(sums);
    pin(value_sums);
  }
};

}  // namespace noisefloor::attention_backward
