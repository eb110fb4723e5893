// What a consumer of ptx_sm90a_halo multiplies: the taps out of their halo, then a second source's steps out of theirs.
// Two loops, so that one of taps alone is what it was without a second source. Device code only.
#pragma once

#include <cstdint>

#include "kernels/convolution/ptx_halo_layout.cuh"
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
template <class T, int kTile, bool kFused, int kConsumers>
__device__ __forceinline__ Held multiply_taps(const Part<kConsumers>& part, const Barriers& barriers,
                                              const HaloBarriers<kConsumers, kFused>& halo_barriers,
                                              const HaloArguments<T>& args, std::uint32_t halos, ptx::Ring& halo_ring,
                                              ptx::Ring& ring, int first, int steps,
                                              float (&acc)[1][HaloLayout<kTile, kFused>::kShape.block_n / 2]) {
  using L = HaloLayout<kTile, kFused>;
  const std::uint32_t weights = halos + args.halo_stages * args.halo_bytes;
  const int row_bytes = args.tiling.halo.width * kRowBytes;
  const int patch_bytes = first_line(args.tiling.patches, args.tiling.halo, part.consumer) * kRowBytes;
  Held held{-1, -1};
  std::uint32_t a = 0;
  // Waits for the next halo, from whose `offset` on the next products read; returns the stage that they leave, or -1.
  const auto enter_halo = [&](int offset) {
    ptx::mbarrier_wait(halo_barriers.ready + halo_ring.stage * 8, halo_ring.parity);
    a = halos + halo_ring.stage * args.halo_bytes + offset;
    const int left = held.halo;
    held.halo = halo_ring.stage;
    halo_ring.advance(args.halo_stages);
    return left;
  };
  const int opens = L::kCanSplit ? args.inbox.opens : -1;
  const auto multiply = [&](int i, std::uint64_t descriptor_a, int left) {
    const std::uint64_t descriptor_b = ptx::wgmma_descriptor_128b(weights + ring.stage * L::kWeightBytes);
    ptx::mbarrier_wait(barriers.full + ring.stage * 8, ring.parity);
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kBlockK / 16; ++k)
      ptx::Wgmma<T, L::kShape.block_n>::run(acc[0], descriptor_a + 2 * k, descriptor_b + 2 * k, i + k > 0);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();
    if (held.weights >= 0) barriers.release(part, held.weights);
    if (left >= 0) halo_barriers.release(part.lane, left);
    if (i == opens) product::open_inbox();
    held.weights = ring.stage;
    ring.advance(args.stages);
  };
  const int of_taps = max(min(args.tap_steps - first, steps), 0);
  TapStep step(args.tiling, first);
#pragma unroll 2
  for (int i = 0; i < of_taps; ++i, step.advance(args.c)) {
    int left = -1;
    if (i == 0 || step.enters_halo()) left = enter_halo(patch_bytes);
    multiply(i, ptx::wgmma_descriptor_128b(a + step.ty * row_bytes + step.tx * kRowBytes, row_bytes), left);
  }
#pragma unroll 1
  for (int i = of_taps; i < steps; ++i) {
    const Halo box = args.tiling.side_box();
    const int left = enter_halo(first_line(args.tiling.patches, box, part.consumer) * kRowBytes);
    multiply(i, ptx::wgmma_descriptor_128b(a, box.width * kRowBytes), left);
  }
  return held;
}

}  // namespace noisefloor::convolution
