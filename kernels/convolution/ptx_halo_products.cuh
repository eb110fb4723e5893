// What a consumer of ptx_sm90a_halo multiplies: the taps out of their halo, then a second source's steps out of theirs.
// Two loops, so that one of taps alone is what it was without a second source. Device code only.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/convolution/ptx_halo_layout.cuh"
#include "kernels/product/sm90a_consumer.cuh"
#include "kernels/product/sm90a_mainloop.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/wgmma.cuh"

namespace noisefloor::convolution {

// Which stages a consumer has not released yet.
struct Held {
  int weights, halo;
};

// A consumer's sums over the k-steps [first, first + steps), whose halos lie at `halos` and whose weights behind them.
// Products of the last step may still run (finish_products); its stages are held.
template <class T, int kTile, bool kFused, int kConsumers, class Op>
__device__ __forceinline__ Held multiply_taps(const WarpRole<kConsumers>& role, const Barriers& barriers,
                                              const HaloBarriers<kConsumers, kFused>& halo_barriers,
                                              const HaloArguments<T, Op>& args, std::uint32_t halos,
                                              ptx::Ring& halo_ring, ptx::Ring& ring, int first, int steps,
                                              float (&acc)[1][HaloLayout<kTile, kFused>::kShape.block_n / 2]) {
  using L = HaloLayout<kTile, kFused>;
  const std::uint32_t weights = halos + args.halo_stages * args.halo_bytes;
  const int row_bytes = args.tiling.halo.width * kRowBytes;
  const int patch_bytes = first_line(args.tiling.patches, args.tiling.halo, role.consumer) * kRowBytes;
  int held_halo = -1;
  std::uint32_t at = 0;  // where a step's rows of A start, / 16
  // Waits for the next halo, from whose `offset` on the next products read; returns the stage that they leave, or -1.
  const auto enter_halo = [&](int offset) {
    ptx::mbarrier_wait(halo_barriers.ready + halo_ring.stage * 8, halo_ring.parity);
    at = (halos + halo_ring.stage * args.halo_bytes + offset) / 16;
    const int left = held_halo;
    held_halo = halo_ring.stage;
    halo_ring.advance(args.halo_stages);
    return left;
  };
  product::ConsumerPipeline<L::kWeightBytes> pipeline(role, barriers, weights, ring, args.stages);
  // Of rows that lie group_bytes apart from one group of 8 to the next. Behind it go_on(), while products run.
  const auto multiply = [&](auto is_first, int group_bytes, int left, auto go_on) {
    const std::uint32_t tile = pipeline.await_tile();
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kBlockK / 16; ++k)
      ptx::Wgmma<T, L::kShape.block_n, kIsGradient<Op>>::run(
          acc[0], ptx::wgmma_descriptor_128b_of(at + 2 * k, group_bytes), product::descriptor<kWeightBox<Op>>(tile, k),
          !is_first || k > 0);
    ptx::wgmma_commit();
    go_on();
    pipeline.template advance<is_first>();
    if (left >= 0) halo_barriers.release(role.lane, left);
  };
  const int of_taps = max(min(args.tap_steps - first, steps), 0);
  TapStep step(args.tiling, first);
  step.ty = product::uniform(step.ty), step.tx = product::uniform(step.tx);
  const std::uint32_t to_next_row = static_cast<std::uint32_t>(row_bytes - (args.c.x.taps - 1) * kRowBytes) / 16;
  const auto multiply_tap = [&](auto is_first) {
    const int left = is_first || step.enters_halo() ? enter_halo(patch_bytes) : -1;
    if constexpr (is_first) at += static_cast<std::uint32_t>(step.ty * row_bytes + step.tx * kRowBytes) / 16;
    multiply(is_first, row_bytes, left, [&] {
      at += step.tx + 1 < args.c.x.taps ? kRowBytes / 16 : to_next_row;
      step.advance(args.c);
    });
  };
  const auto multiply_side = [&](auto is_first) {
    const Halo box = args.tiling.side_box();
    const int left = enter_halo(first_line(args.tiling.patches, box, role.consumer) * kRowBytes);
    multiply(is_first, box.width * kRowBytes, left, [] {});
  };
  if (of_taps > 0)
    multiply_tap(std::true_type());
  else
    multiply_side(std::true_type());
  const int opens = L::kCanSplit ? args.dsmem.opens : -1;
  int i = 1;
  product::run_steps(opens, steps, [&](int end) {
#pragma unroll 1
    for (const int taps_end = min(of_taps, end); i < taps_end; ++i) multiply_tap(std::false_type());
#pragma unroll 1
    for (; i < end; ++i) multiply_side(std::false_type());
  });
  return {pipeline.leave(ring), held_halo};
}

}  // namespace noisefloor::convolution
