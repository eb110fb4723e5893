// The micro-kernel of matrix products on the host, and the layout of its operands: what the host variants of gemm and
// of the convolutions share.
//
// After Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (TOMS 2008). Both operands are
// packed in blocks of kBlockK of k, each a row of panels laid out as the micro-kernel reads them: kMicroM rows of A, or
// kMicroN rows of B, side by side for every k. The micro-kernel keeps kMicroM x kMicroN sums in vector registers
// (AVX-512: 24 + 2 of 32; AVX2: 12 + 2 of 16); a panel of B stays in L1 (16 KiB).
#pragma once

#include <cstdint>

namespace noisefloor::host_product {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
inline constexpr int kMicroM = 12;
#elif defined(__AVX__)
inline constexpr int kVectorBytes = 32;
inline constexpr int kMicroM = 6;
#else
inline constexpr int kVectorBytes = 16;
inline constexpr int kMicroM = 6;
#endif
using Vector __attribute__((vector_size(kVectorBytes), may_alias)) = float;

inline constexpr int kVector = kVectorBytes / static_cast<int>(sizeof(float));
inline constexpr int kMicroN = 2 * kVector;
inline constexpr std::int64_t kBlockK = 16 * 1024 / (kMicroN * static_cast<int>(sizeof(float)));

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// tile[kMicroM][stride] += panel of A times panel of B, over `depth` of k.
inline void micro_kernel(std::int64_t depth, const float* a, const float* b, float* tile, std::int64_t stride) {
  Vector sums[kMicroM][2] = {};
  for (std::int64_t i = 0; i < depth; ++i, a += kMicroM, b += kMicroN) {
    const Vector b0 = *reinterpret_cast<const Vector*>(b);
    const Vector b1 = *reinterpret_cast<const Vector*>(b + kVector);
#pragma GCC unroll 16
    for (int r = 0; r < kMicroM; ++r) {
      sums[r][0] += a[r] * b0;
      sums[r][1] += a[r] * b1;
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kMicroM; ++r) {
    *reinterpret_cast<Vector*>(tile + r * stride) += sums[r][0];
    *reinterpret_cast<Vector*>(tile + r * stride + kVector) += sums[r][1];
  }
}

}  // namespace noisefloor::host_product
