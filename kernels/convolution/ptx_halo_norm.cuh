// The norm in front of a convolution whose halo lies in shared memory: x * scale + shift, and SiLU, in place, once for
// all taps, by warps that would otherwise wait. Pixels outside of the image and channels past the last stay zero, as
// TMA wrote them. Device code only.
#pragma once

#include <cstdint>

#include "kernels/convolution/ptx_halo_layout.cuh"
#include "kernels/device/vector.cuh"
#include "kernels/ptx/fence.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/shared.cuh"
#include "kernels/ptx/special_functions.cuh"
#include "kernels/ptx/tma.cuh"

namespace noisefloor::convolution {

// What eight channels of an image are multiplied by, and what is added; before SiLU half of both.
struct NormChannels {
  float scale[8], shift[8];

  __device__ __forceinline__ void load(const float* from, int cin, bool with_silu) {
#pragma unroll
    for (int i = 0; i < 8; i += 4) {
      const float4 a = *reinterpret_cast<const float4*>(from + i);
      const float4 b = *reinterpret_cast<const float4*>(from + cin + i);
      scale[i] = a.x, scale[i + 1] = a.y, scale[i + 2] = a.z, scale[i + 3] = a.w;
      shift[i] = b.x, shift[i + 1] = b.y, shift[i + 2] = b.z, shift[i + 3] = b.w;
    }
    if (!with_silu) return;
#pragma unroll
    for (int i = 0; i < 8; ++i) scale[i] *= 0.5f, shift[i] *= 0.5f;
  }
  // silu(v) = v / 2 + v / 2 * tanh(v / 2): one special function a number, where an exponential and a reciprocal are
  // two.
  template <class T>
  __device__ __forceinline__ uint4 apply(uint4 bits, bool with_silu) const {
    float v[8];
    unpack_vector<T>(bits, v);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = fmaf(v[i], scale[i], shift[i]);
    if (with_silu) {
#pragma unroll
      for (float& x : v) x = fmaf(x, ptx::tanh_approx(x), x);
    }
    return pack_vector<T>(v);
  }
};

// The threads of kNormWarps warps: eight of them share a line of 64 channels.
template <class T, int kConsumers>
struct NormPart {
  using Halos = HaloBarriers<kConsumers, true>;
  static constexpr int kLines = Halos::kNormWarps * 4;  // at once
  const HaloArguments<T>& args;
  const Halos& barriers;
  std::uint32_t halos;  // shared
  int thread;

  // Asks for the halo of channels from `channel` on, by one thread. Not by the producer of the weights, who is only as
  // far ahead as they are: here the next halo is asked for as soon as its place is free, and there is time to norm it.
  __device__ __forceinline__ void load(const CUtensorMap* map, const HaloCoordinate& at, const ptx::Ring& ring,
                                       int channel) const {
    if (thread != 0) return;
    const std::uint32_t full = barriers.full + ring.stage * 8;
    ptx::mbarrier_wait(barriers.empty + ring.stage * 8, ring.parity ^ 1);
    ptx::mbarrier_arrive_expect_tx(full, static_cast<std::uint32_t>(args.tiling.halo.lines() * kRowBytes));
    ptx::tma_load_4d(halos + ring.stage * args.halo_bytes, map, full, channel, at.input_x(args.c), at.input_y(args.c),
                     at.image);
  }

  // The lines of one image, whose first pixel is [top, left] of the input, at `lines`.
  __device__ __forceinline__ void norm_image(const NormChannels& channels, std::uint32_t lines, int first, int top,
                                             int left, bool with_silu) const {
    const int chunk = thread % 8, count = args.tiling.halo.width * args.tiling.halo.height;
    const int width = args.tiling.halo.width, right = args.c.x.in, bottom = args.c.y.in;
    int y = top, x = left + thread / 8, line = thread / 8;
    const int end = left + width;
    // Where the next line of this thread lies; 0 for a pixel outside of the image, or past the last line.
    const auto next = [&] {
#pragma unroll
      for (int i = 0; i < 2; ++i)  // kLines is less than two rows
        if (x >= end) x -= width, ++y;
      // As an unsigned number, what lies above or left of the image is large.
      const bool inside = line < count && static_cast<unsigned>(y) < static_cast<unsigned>(bottom) &&
                          static_cast<unsigned>(x) < static_cast<unsigned>(right);
      const int at = first + line;
      x += kLines, line += kLines;
      return inside ? lines + at * kRowBytes + (chunk ^ (at & 7)) * 16 : 0;
    };
    // Several at a time: beside wgmma, which takes most of what shared memory gives, a load takes hundreds of cycles.
    constexpr int kAtOnce = 3;
    while (line < count) {
      std::uint32_t address[kAtOnce];
      uint4 bits[kAtOnce] = {};
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        address[i] = next();
        if (address[i] != 0) bits[i] = ptx::load_shared_16(address[i]);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (address[i] != 0) ptx::store_shared(address[i], channels.apply<T>(bits[i], with_silu));
    }
  }

  // Norms the halos of a tile's k-steps [first_step, first_step + steps), one after the other as they arrive.
  __device__ __forceinline__ void run(const CUtensorMap* map, const HaloCoordinate& at, ptx::Ring& ring, int first_step,
                                      int steps) const {
    const Convolution& c = args.c;
    const Halo& halo = args.tiling.halo;
    const int top = at.input_y(c), left = at.input_x(c);
    const bool with_silu = c.norm == Norm::affine_silu;
    const int images = min(halo.images, c.images - at.image);
    const int last_part = (first_step + steps - 1) / args.tiling.taps;
    for (int part = first_step / args.tiling.taps; part <= last_part; ++part, ring.advance(args.halo_stages)) {
      load(map, at, ring, part * kBlockK);
      const int channel = part * kBlockK + thread % 8 * 8;
      const bool exists = channel < c.cin;
      const float* coefficients = args.norm + (std::int64_t{at.image} * 2 * c.cin + channel);
      NormChannels channels;
      if (exists && images > 0) channels.load(coefficients, c.cin, with_silu);
      __syncwarp();
      ptx::mbarrier_wait(barriers.full + ring.stage * 8, ring.parity);
      const std::uint32_t stage = halos + ring.stage * args.halo_bytes;
      for (int image = 0; exists && image < images; ++image) {
        if (image > 0) channels.load(coefficients + std::int64_t{image} * 2 * c.cin, c.cin, with_silu);
        norm_image(channels, stage, image * halo.width * halo.height, top, left, with_silu);
      }
      ptx::fence_proxy_async_shared();
      __syncwarp();
      if (thread % 32 == 0) ptx::mbarrier_arrive(barriers.ready + ring.stage * 8);
    }
  }
};

}  // namespace noisefloor::convolution
