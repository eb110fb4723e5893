// The norm in front of a convolution whose halo lies in shared memory: x * scale + shift, and SiLU, in place, once for
// all taps, by warps that would otherwise wait. Pixels outside of the image and channels past the last stay zero, as
// TMA wrote them. Device code only.
#pragma once

#include <cstdint>

#include "kernels/convolution/ptx_halo_layout.cuh"
#include "kernels/device/activations.cuh"
#include "kernels/device/vector.cuh"
#include "kernels/ptx/fence.cuh"
#include "kernels/ptx/mbarrier.cuh"

namespace noisefloor::convolution {

// What eight channels of an image are multiplied by, and what is added.
struct NormChannels {
  float scale[8], shift[8];

  __device__ __forceinline__ void load(const float* from, int cin) {
#pragma unroll
    for (int i = 0; i < 8; i += 4) {
      const float4 a = *reinterpret_cast<const float4*>(from + i);
      const float4 b = *reinterpret_cast<const float4*>(from + cin + i);
      scale[i] = a.x, scale[i + 1] = a.y, scale[i + 2] = a.z, scale[i + 3] = a.w;
      shift[i] = b.x, shift[i + 1] = b.y, shift[i + 2] = b.z, shift[i + 3] = b.w;
    }
  }
  template <class T>
  __device__ __forceinline__ uint4 apply(uint4 bits, bool with_silu) const {
    float v[8];
    unpack_vector<T>(bits, v);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = fmaf(v[i], scale[i], shift[i]);
    if (with_silu) {
#pragma unroll
      for (float& x : v) x = silu<T>(x);
    }
    return pack_vector<T>(v);
  }
};

// The lines of an image's halo that a thread norms, one after the other.
struct HaloLines {
  int width, lines, line, x, y, left_edge;

  __device__ __forceinline__ HaloLines(const Halo& halo, int first, int at_y, int at_x)
      : width(halo.width), lines(halo.width * halo.height), line(first), x(first), y(at_y), left_edge(at_x) {}
  __device__ __forceinline__ bool left() const { return line < lines; }
  // Where the next one's 16 bytes of `chunk` lie; null for a pixel outside of the image, or past the last line.
  __device__ __forceinline__ uint4* next(const Convolution& c, std::uint8_t* stage, int before, int chunk, int stride) {
    for (; x >= width; x -= width) ++y;
    // As an unsigned number, what lies above or left of the image is large.
    const bool inside = line < lines && static_cast<unsigned>(y) < static_cast<unsigned>(c.y.in) &&
                        static_cast<unsigned>(left_edge + x) < static_cast<unsigned>(c.x.in);
    const int at = before + line;
    auto* const bits = reinterpret_cast<uint4*>(stage + at * kRowBytes + (chunk ^ (at % 8)) * 16);
    line += stride, x += stride;
    return inside ? bits : nullptr;
  }
};

// Norms the halos of a tile's k-steps [first_step, first_step + steps), one after the other as they arrive. `thread`
// counts those of kNormWarps warps; eight of them share a line of 64 channels.
template <class T, int kConsumers>
__device__ __forceinline__ void norm_halos(const HaloArguments<T>& args, const HaloPlace& at, std::uint8_t* halos,
                                           const HaloBarriers<kConsumers, true>& barriers, ptx::Ring& ring,
                                           int first_step, int steps, int thread) {
  constexpr int kLines = HaloBarriers<kConsumers, true>::kNormWarps * 4;  // at once
  const Convolution& c = args.c;
  const Halo& halo = args.tiling.halo;
  const int chunk = thread % 8, first_line = thread / 8;
  const int top = at.input_y(c), left = at.input_x(c);
  const bool with_silu = c.norm == Norm::affine_silu;
  const int images = min(halo.images, c.images - at.image);
  const int last_part = (first_step + steps - 1) / args.tiling.taps;
  for (int part = first_step / args.tiling.taps; part <= last_part; ++part, ring.advance(args.halo_stages)) {
    const int channel = part * kBlockK + chunk * 8;
    const bool exists = channel < c.cin;
    const float* coefficients = args.norm + (std::int64_t{at.image} * 2 * c.cin + channel);
    NormChannels channels;
    if (exists && images > 0) channels.load(coefficients, c.cin);
    ptx::mbarrier_wait(barriers.full + ring.stage * 8, ring.parity);
    std::uint8_t* const stage = halos + ring.stage * args.halo_bytes;
    for (int image = 0; exists && image < images; ++image) {
      if (image > 0) channels.load(coefficients + std::int64_t{image} * 2 * c.cin, c.cin);
      const int before = image * halo.width * halo.height;
      HaloLines lines(halo, first_line, top, left);
      // Two at a time, so that one waits for the other's exponentials.
      while (lines.left()) {
        uint4* const first = lines.next(c, stage, before, chunk, kLines);
        uint4* const second = lines.next(c, stage, before, chunk, kLines);
        uint4 a{}, b{};
        if (first) a = *first;
        if (second) b = *second;
        a = channels.apply<T>(a, with_silu);
        b = channels.apply<T>(b, with_silu);
        if (first) *first = a;
        if (second) *second = b;
      }
    }
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (thread % 32 == 0) ptx::mbarrier_arrive(barriers.ready + ring.stage * 8);
  }
}

}  // namespace noisefloor::convolution
