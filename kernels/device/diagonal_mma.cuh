// Linear forms of one or two streams on the tensor cores (sm_80): c0 x0 + c1 x1 as the product of a warp's data with a
// matrix that holds c0 and c1 on the diagonals of its two halves.
//
// In m16n8k16 lane (g, t) holds elements 2t, 2t + 1 of rows g and g + 8 of A in both halves of k, and of D the same
// elements of the same rows. With B[k][n] = c0 where k = n, c1 where k = n + 8, and 0 elsewhere, a lane therefore gets
// back what it has loaded, scaled and summed: no shuffle, whatever the 16 bytes of a lane are. Of 16 x 8 x 16
// multiply-adds 16 x 8 x 2 are wanted, 1/8, and a form of two terms takes an FMA and a product: 8 elements of a lane
// take 2 mma per term of the coefficients where 16 FMA-pipe instructions would do.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/core/device.h"
#include "kernels/device/vector.cuh"
#include "kernels/ptx/mma.cuh"

namespace noisefloor {

// c0 and c1 as a warp's operand B, split into kTerms numbers of T whose sum is the coefficient: three of bf16 hold 24
// bits, as do two of fp16 (11 bits and a sign each; but below 2^-14 absolute, where fp16 runs out of exponents). One
// term is enough for coefficients that T holds exactly.
template <class T, int kTerms>
struct DiagonalCoefficients {
  std::uint32_t low[kTerms], high[kTerms];

  __device__ __forceinline__ DiagonalCoefficients(float c0, float c1) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int g = lane / 4, t = lane % 4;
    const bool mine = t == g / 2, odd = g % 2 != 0;  // column g has its diagonal at k = g, in this lane's pair
#pragma unroll
    for (int term = 0; term < kTerms; ++term) {
      const T part0 = from_float<T>(c0), part1 = from_float<T>(c1);
      c0 -= to_float(part0);
      c1 -= to_float(part1);
      const float v0 = mine ? to_float(part0) : 0.0f, v1 = mine ? to_float(part1) : 0.0f;
      low[term] = pack_pair<T>(odd ? 0.0f : v0, odd ? v0 : 0.0f);
      high[term] = pack_pair<T>(odd ? 0.0f : v1, odd ? v1 : 0.0f);
    }
  }
};

// out += c0 x0 + c1 x1 for the 8 elements of each lane's vectors; all lanes of the warp together. Products are exact,
// sums fp32; infinity in a stream makes NaN of its neighbours, since it is multiplied by the zeros too.
template <class T, int kTerms>
__device__ __forceinline__ void diagonal_product(const DiagonalCoefficients<T, kTerms>& c, const uint4& x0,
                                                 const uint4& x1, float (&out)[8]) {
  const std::uint32_t a[2][4] = {{x0.x, x0.y, x1.x, x1.y}, {x0.z, x0.w, x1.z, x1.w}};
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int term = 0; term < kTerms; ++term)
      ptx::mma_m16n8k16<T>(reinterpret_cast<float(&)[4]>(out[4 * half]), a[half], c.low[term], c.high[term]);
}

// Grid-stride loops of whole warps over `vectors` 16-byte vectors: calls body(vector, valid) with every lane of a warp,
// those beyond the end with valid = false and the last vector's number.
inline constexpr int kDiagonalThreads = 256;
template <class Body>
__device__ __forceinline__ void for_each_warp_vector(std::uint32_t vectors, const Body& body) {
  const std::uint32_t stride = gridDim.x * blockDim.x;
  const std::uint32_t lane = threadIdx.x % 32;
  for (std::uint32_t first = blockIdx.x * blockDim.x + threadIdx.x - lane; first < vectors; first += stride) {
    const std::uint32_t vector = first + lane;
    body(min(vector, vectors - 1), vector < vectors);
  }
}

// A row of blocks for each image of so many vectors, as many as a device holds at once.
inline dim3 diagonal_grid(std::uint32_t vectors, std::int64_t images, const LaunchContext& context) {
  const auto rows = static_cast<unsigned>(images);
  const unsigned resident = 8 * static_cast<unsigned>(context.device->sm_count);  // of 256 threads
  return dim3(std::min((vectors + kDiagonalThreads - 1) / kDiagonalThreads, (resident + rows - 1) / rows), rows);
}

}  // namespace noisefloor
