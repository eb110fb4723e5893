// What ptx_sm90a's threads do with quads, where y is half as high and wide as x (down_w): a row of the plan is a pixel
// of y, four of x. A thread fetches all four of its columns, so that a mean needs nothing but the thread's own.
#pragma once

#include "kernels/groupnorm/stripe.cuh"

namespace noisefloor::groupnorm {
namespace {

constexpr int kQuad = 4;  // pixels: left and right of the upper row, then of the lower one

// Where quads lie in x, in elements.
struct Quads {
  int half_w;  // of a row, which is half_w quads long
  float half_w_inverse;
  std::int64_t next_row;  // from a pixel to the one below
};

inline Quads make_quads(const Problem& p) {
  if (!p.down()) return {};
  return {static_cast<int>(p.down_w / 2), 1.0f / static_cast<float>(p.down_w / 2), p.down_w * p.channels};
}

// Quad `quad` of an image, whose first element of the thread's is `image`.
template <class T>
__device__ __forceinline__ const T* first_of_quad(const StripeArguments& a, const Quads& q, const T* image, int quad) {
  const int row = divide(quad, q.half_w_inverse);
  return image + static_cast<std::int64_t>(2 * (quad + row * q.half_w)) * a.channels;
}
__device__ __forceinline__ std::int64_t corner_offset(const StripeArguments& a, const Quads& q, int corner) {
  return (corner % 2) * a.channels + (corner / 2) * q.next_row;
}

// As fetch_stages: the thread's quads from row `r` of the block's `rows` on, whose first is quad `begin` of the image.
// In shared memory a block's quads stand once for each corner, `corner_step` bytes apart.
template <class T>
__device__ __forceinline__ void fetch_quads(const StripeArguments& a, const Quads& q, const T* image, int begin,
                                            std::uint32_t destination, int tile_step, int corner_step, int r,
                                            int rows) {
#pragma unroll 1
  for (int stage = 0; stage < a.stages; ++stage) {
#pragma unroll 1
    for (int k = 0; k < a.stage_accesses && r < rows; ++k, r += a.plan.tile_rows) {
      const T* source = first_of_quad(a, q, image, begin + r);
#pragma unroll
      for (int corner = 0; corner < kQuad; ++corner)
        ptx::cp_async_16_alone(destination + corner * corner_step, source + corner_offset(a, q, corner));
      destination += tile_step;
    }
    ptx::cp_async_commit();
  }
}

// Adds a quad, of which corner(i) gives 16 bytes, and writes its mean.
template <class T, class Corner>
__device__ __forceinline__ void add_quad(ChannelSums& sums, T* x_down, const Corner& corner) {
  float mean[8] = {};
#pragma unroll
  for (int i = 0; i < kQuad; ++i) {
    const uint4 bits = corner(i);
    float value[8];
    unpack_vector<T>(bits, value);
#pragma unroll
    for (int c = 0; c < 8; ++c) mean[c] += value[c];
    add_row<T>(sums, bits);
  }
#pragma unroll
  for (float& value : mean) value *= 0.25f;
  store_vector<T>(x_down, mean);
}

// y of eight channels of a quad: the mean of what write_row would write for each of its pixels.
template <class T, bool kActivate, class Corner>
__device__ __forceinline__ void write_quad(T* y, const float (&ca)[8], const float (&cb)[8], const Corner& corner) {
  float mean[8] = {};
#pragma unroll
  for (int i = 0; i < kQuad; ++i) {
    float value[8];
    unpack_vector<T>(corner(i), value);
    fuse_row<kActivate>(value, ca, cb);
    unpack_vector<T>(pack_vector<T>(value), value);  // rounded
#pragma unroll
    for (int c = 0; c < 8; ++c) mean[c] += value[c];
  }
#pragma unroll
  for (float& value : mean) value *= 0.25f;
  store_vector<T>(y, mean);
}

}  // namespace
}  // namespace noisefloor::groupnorm
