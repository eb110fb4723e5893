// What the epilogues of all products use to move neighbouring outputs. Device code only.
#pragma once

#include <cstdint>

namespace noisefloor::product {

// kCount neighbouring elements, moved by the widest access that their size allows.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) Run {
  T v[kCount];
};

// Four lanes that hold 4 words each exchange them: lane i's word j becomes lane j's word i. Its own inverse.
__device__ __forceinline__ void transpose_quad(std::uint32_t (&word)[4], int lane) {
  const bool odd = lane & 1;
  const bool high = lane & 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const std::uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? word[i] : word[i + 1], 1);
    (odd ? word[i] : word[i + 1]) = got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t got = __shfl_xor_sync(0xffffffffu, high ? word[i] : word[i + 2], 2);
    (high ? word[i] : word[i + 2]) = got;
  }
}

}  // namespace noisefloor::product
