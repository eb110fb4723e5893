// 16-byte accesses of bf16, fp16 and fp32 arrays, widened to float in registers. Device code only.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace noisefloor {

// Elements of T in 16 bytes: 8 of bf16 or fp16, 4 of fp32.
template <class T>
inline constexpr int kVectorLanes = 16 / static_cast<int>(sizeof(T));

__device__ __forceinline__ float to_float(float value) {
  return value;
}
__device__ __forceinline__ float to_float(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
__device__ __forceinline__ float to_float(__half value) {
  return __half2float(value);
}

// Rounds to nearest even.
template <class T>
__device__ __forceinline__ T from_float(float value);
template <>
__device__ __forceinline__ float from_float<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}
template <>
__device__ __forceinline__ __half from_float<__half>(float value) {
  return __float2half_rn(value);
}

// Two packed 16-bit elements (low half first) to floats and back.
template <class T>
__device__ __forceinline__ void unpack_pair(std::uint32_t bits, float& low, float& high);
template <>
__device__ __forceinline__ void unpack_pair<__nv_bfloat16>(std::uint32_t bits, float& low, float& high) {
  low = __uint_as_float(bits << 16);  // a bf16 is the upper half of a float
  high = __uint_as_float(bits & 0xffff0000u);
}
template <>
__device__ __forceinline__ void unpack_pair<__half>(std::uint32_t bits, float& low, float& high) {
  const float2 pair = __half22float2(reinterpret_cast<const __half2&>(bits));
  low = pair.x;
  high = pair.y;
}

template <class T>
__device__ __forceinline__ std::uint32_t pack_pair(float low, float high);
template <>
__device__ __forceinline__ std::uint32_t pack_pair<__nv_bfloat16>(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const std::uint32_t&>(pair);
}
template <>
__device__ __forceinline__ std::uint32_t pack_pair<__half>(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return reinterpret_cast<const std::uint32_t&>(pair);
}

// The 16 bytes `bits` as kVectorLanes<T> floats, and the reverse.
template <class T>
__device__ __forceinline__ void unpack_vector(uint4 bits, float (&out)[kVectorLanes<T>]) {
  if constexpr (sizeof(T) == 4) {
    out[0] = __uint_as_float(bits.x);
    out[1] = __uint_as_float(bits.y);
    out[2] = __uint_as_float(bits.z);
    out[3] = __uint_as_float(bits.w);
  } else {
    unpack_pair<T>(bits.x, out[0], out[1]);
    unpack_pair<T>(bits.y, out[2], out[3]);
    unpack_pair<T>(bits.z, out[4], out[5]);
    unpack_pair<T>(bits.w, out[6], out[7]);
  }
}

template <class T>
__device__ __forceinline__ uint4 pack_vector(const float (&in)[kVectorLanes<T>]) {
  if constexpr (sizeof(T) == 4) {
    return make_uint4(__float_as_uint(in[0]), __float_as_uint(in[1]), __float_as_uint(in[2]), __float_as_uint(in[3]));
  } else {
    return make_uint4(pack_pair<T>(in[0], in[1]), pack_pair<T>(in[2], in[3]), pack_pair<T>(in[4], in[5]),
                      pack_pair<T>(in[6], in[7]));
  }
}

// How an access treats the caches. `keep` is the default; `once` says that the line will not be needed again
// (streaming, evict first); `read_only` goes through the non-coherent path: nothing in the grid may write the array.
enum class CacheHint { keep, once, read_only, read_only_once };

// `pointer` must be 16-byte aligned.
template <CacheHint hint = CacheHint::keep>
__device__ __forceinline__ uint4 load_16_bytes(const void* pointer) {
  const auto* vector = static_cast<const uint4*>(pointer);
  if constexpr (hint == CacheHint::once) return __ldcs(vector);
  if constexpr (hint == CacheHint::read_only) return __ldg(vector);
  if constexpr (hint == CacheHint::read_only_once) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(__cvta_generic_to_global(pointer)));
    return v;
  }
  return *vector;
}

template <CacheHint hint = CacheHint::keep>
__device__ __forceinline__ void store_16_bytes(void* pointer, uint4 bits) {
  static_assert(hint == CacheHint::keep || hint == CacheHint::once, "stores have no read-only path");
  auto* vector = static_cast<uint4*>(pointer);
  if constexpr (hint == CacheHint::once)
    __stcs(vector, bits);
  else
    *vector = bits;
}

// kVectorLanes<T> elements at the 16-byte aligned `pointer`, as floats, and the reverse.
template <class T, CacheHint hint = CacheHint::keep>
__device__ __forceinline__ void load_vector(const T* pointer, float (&out)[kVectorLanes<T>]) {
  unpack_vector<T>(load_16_bytes<hint>(pointer), out);
}
template <class T, CacheHint hint = CacheHint::keep>
__device__ __forceinline__ void store_vector(T* pointer, const float (&in)[kVectorLanes<T>]) {
  store_16_bytes<hint>(pointer, pack_vector<T>(in));
}

}  // namespace noisefloor
