// What ptx_sm90a's wgrad sums of dy for the biases: warps beside those that multiply read the boxes that TMA brings.
// Device code only.
#pragma once

#include <cstdint>

#include "kernels/convolution/wgrad_shares.cuh"
#include "kernels/device/vector.cuh"
#include "kernels/ptx/fence.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/ring.cuh"
#include "kernels/ptx/shared.cuh"

namespace noisefloor::convolution {

inline constexpr int kSummers = 3;  // warps that sum dy, behind the one that loads
inline constexpr int kScratchBytes = kSummers * kWgradBlock * 4;

struct WgradRing {
  std::uint32_t stages, full, empty;  // addresses
};

// of[8] += 4 * kCount lines of 8 channels, every fourth from `line` on: the loads first.
template <class T, int kCount>
__device__ __forceinline__ void add_lines(std::uint32_t lines, int line, int chunk, float (&of)[8]) {
  uint4 loaded[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    loaded[i] = ptx::load_shared_16(lines + (line + 4 * i) * kWgradLine + (chunk ^ ((line + 4 * i) & 7)) * 16);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    float values[8];
    unpack_vector<T>(loaded[i], values);
#pragma unroll
    for (int c = 0; c < 8; ++c) of[c] += values[c];
  }
}

// A warp: sums over dy's pixels, in the tiles of the first input channels: of a share, for dbias, and of each box and
// image, for dshift. Each of the three has a box of dy, or of one box every third step. Lane l has 8 channels of every
// fourth line from l / 8 on. `scratch`: kSummers x 64 floats of shared memory.
template <class T>
__device__ __forceinline__ void sum_gradients(const WgradArguments& args, const WgradRing& at, int summer,
                                              std::uint32_t scratch) {
  constexpr std::uint32_t kBarrier = 1;  // of the warps that sum
  const int lane = static_cast<int>(threadIdx.x) % 32, chunk = lane % 8;
  const bool takes_all = args.step.one_tap();
  const int stage_bytes = args.step.stage_bytes(), images = args.step.dy.images;  // 1, or 4 of 16 lines
  const int column = (takes_all ? summer * kWgradBlock : 0) + chunk * 8;          // of the tile
  const auto add_lanes = [](float(&sums)[8]) {
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      sums[c] += __shfl_xor_sync(0xffffffffu, sums[c], 8);
      sums[c] += __shfl_xor_sync(0xffffffffu, sums[c], 16);
    }
  };
  WgradWalk walk(args.cut, static_cast<int>(blockIdx.x));
  WgradShare share;
  ptx::Ring ring;
  int turn = 0;
  while (walk.next(share)) {
    const bool wanted = share.tile % args.cut.tiles_ci == 0;
    const int channel = args.out_channel(share.tile) + column;
    // The first lanes, channels before `end`.
    const auto store = [&]<class To>(To* to, const float(&sums)[8], float scale, int end) {
#pragma unroll
      for (int c = 0; c < 8; ++c)
        if (lane < 8 && channel + c < end) to[c] = from_float<To>(scale * sums[c]);
    };
    float sums[8] = {};
    const auto add_image = [&](float(&of_image)[8], int image, int box) {
#pragma unroll
      for (int c = 0; c < 8; ++c) sums[c] += of_image[c];
      if (args.dshift == nullptr || image >= args.images) return;
      add_lanes(of_image);
      const int padded = wgrad_box_channels(args.cout);
      if (args.box_sums != nullptr)
        store(args.box_sums + (std::int64_t{image} * args.cut.boxes() + box) * padded + channel, of_image, 1, padded);
      else
        store(static_cast<T*>(args.dshift) + std::int64_t{image} * args.cout + channel, of_image, args.scale,
              args.cout);
    };
#pragma unroll 1
    for (int i = share.first; i < share.first + share.count; ++i, ring.advance(args.stages)) {
      ptx::mbarrier_wait(at.full + ring.stage * 8, ring.parity);
      const std::uint32_t lines =
          at.stages + ring.stage * stage_bytes + (takes_all ? summer * (kWgradBlock * kWgradLine) : 0);
      const bool takes = wanted && (takes_all || turn == summer);
      turn = turn == kSummers - 1 ? 0 : turn + 1;
      const int first = i / args.cut.across / args.cut.down, box = i - first * args.cut.boxes();
      if (takes && images == 1) {
        float of_step[8] = {};
        add_lines<T, 8>(lines, lane / 8, chunk, of_step);
        add_lines<T, 8>(lines, kWgradBlock / 2 + lane / 8, chunk, of_step);
        add_image(of_step, first, box);
      } else if (takes) {
#pragma unroll 1
        for (int image = 0; image < images; ++image) {
          float of_image[8] = {};
          add_lines<T, 4>(lines, image * 16 + lane / 8, chunk, of_image);
          add_image(of_image, first * images + image, box);
        }
      }
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(at.empty + ring.stage * 8);
    }
    if (!wanted || args.dbias == nullptr) continue;
    add_lanes(sums);
    if (!takes_all) {
      const auto place = [&](int of, int c) {
        return scratch + static_cast<std::uint32_t>(of * kWgradBlock + column + c) * 4;
      };
      if (lane < 8)
        for (int c = 0; c < 8; ++c) ptx::store_shared_float(place(summer, c), sums[c]);
      ptx::named_barrier_sync(kBarrier, kSummers * 32);
      for (int c = 0; c < 8; ++c)
        for (int other = 1; other < kSummers; ++other) sums[c] += ptx::load_shared_float(place(other, c));
      ptx::named_barrier_sync(kBarrier, kSummers * 32);
      if (summer > 0) continue;
    }
    if (share.whole(args.cut.steps))
      store(args.dbias + channel, sums, args.scale, args.cout);
    else
      store(args.partials + std::int64_t{share.place} * kWgradShare + kWgradRuns * kWgradRun + column, sums, 1,
            args.cout);
  }
}

}  // namespace noisefloor::convolution
