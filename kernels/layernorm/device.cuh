// What the fast GPU variants of layernorm share: teams of lanes that own a row, its moments, and its way out.
#pragma once

#include <bit>

#include "kernels/device/block_sum.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/divider.h"
#include "kernels/device/stream.cuh"
#include "kernels/layernorm/layernorm.h"

namespace noisefloor::layernorm {

template <class T>
struct Arguments {
  Tensors t;
  std::uint32_t rows;
  int vectors;  // of a row
  Divider rows_per_image;
  float length_inverse, eps;
};

template <class T>
Arguments<T> make_arguments(const Problem& p, const Tensors& t) {
  Arguments<T> a;
  a.t = t;
  a.rows = static_cast<std::uint32_t>(p.rows);
  a.vectors = static_cast<int>(p.channels) / kVectorLanes<T>;
  a.rows_per_image = Divider(static_cast<std::uint32_t>(p.rows_per_image()));
  a.length_inverse = 1.0f / static_cast<float>(p.channels);
  a.eps = static_cast<float>(p.eps);
  return a;
}

// Lanes that share a row: as few as take five vectors each, so that a step in which lanes idle is one in five (320, 640
// and 1280 channels of 16 bits are exactly five vectors of 8, 16 and 32 lanes), and more rows of a warp are under way.
inline int team_of(int vectors) {
  int lanes = 4;
  while (lanes < 32 && lanes * 5 < vectors) lanes *= 2;
  return lanes;
}

struct Moments {
  float mean, rstd;
};

// x, plus the residual where there is one.
template <class T>
__device__ __forceinline__ void sum_vector(const uint4& x, const uint4& residual, bool has_residual,
                                           float (&s)[kVectorLanes<T>]) {
  unpack_vector<T>(x, s);
  if (!has_residual) return;
  float other[kVectorLanes<T>];
  unpack_vector<T>(residual, other);
#pragma unroll
  for (int i = 0; i < kVectorLanes<T>; ++i) s[i] += other[i];
}

// Where vector `vector` of row `row` lies in x and y.
template <class T>
__device__ __forceinline__ std::int64_t place_of(const Arguments<T>& a, std::uint32_t row, int vector) {
  return (static_cast<std::int64_t>(row) * a.vectors + vector) * kVectorLanes<T>;
}

// Where gamma, beta, scale or shift (`which` 0 to 3) of a vector of row `row` lies.
template <class T>
__device__ __forceinline__ const T* parameter(const Arguments<T>& a, std::uint32_t row, int vector, int which) {
  const void* const base[] = {a.t.gamma, a.t.beta, a.t.scale, a.t.shift};
  if (which < 2) return static_cast<const T*>(base[which]) + vector * kVectorLanes<T>;
  return static_cast<const T*>(base[which]) + place_of(a, row / a.rows_per_image, vector);
}

template <class T>
__device__ __forceinline__ uint4 load_parameter(const Arguments<T>& a, std::uint32_t row, int vector, int which) {
  return load_16_bytes<CacheHint::read_only>(parameter(a, row, vector, which));
}

// Calls take(which) for those that there are.
template <class T, class Take>
__device__ __forceinline__ void each_parameter(const Arguments<T>& a, const Take& take) {
#pragma unroll
  for (int which = 0; which < 4; ++which)
    if (which < 2 ? a.t.gamma : a.t.scale) take(which);
}

// From the normalised `s` of a vector of row `row` (below `rows`) to its y; `bits(which)` gives its parameters.
template <CacheHint kStore = CacheHint::once, class T, class Bits>
__device__ __forceinline__ void store_normalised(const Arguments<T>& a, std::uint32_t row, int vector,
                                                 float (&s)[kVectorLanes<T>], const Bits& bits) {
  float first[kVectorLanes<T>], second[kVectorLanes<T>];
  if (a.t.gamma) {
    unpack_vector<T>(bits(0), first);
    unpack_vector<T>(bits(1), second);
#pragma unroll
    for (int i = 0; i < kVectorLanes<T>; ++i) s[i] = s[i] * first[i] + second[i];
  }
  if (a.t.scale) {
    unpack_vector<T>(bits(2), first);
    unpack_vector<T>(bits(3), second);
#pragma unroll
    for (int i = 0; i < kVectorLanes<T>; ++i) s[i] = s[i] * (1.0f + first[i]) + second[i];
  }
  store_vector<T, kStore>(static_cast<T*>(a.t.y) + place_of(a, row, vector), s);
}

// The same from x (+ residual), which leaves as well where the sum is an output.
template <CacheHint kStore = CacheHint::once, class T>
__device__ __forceinline__ void finish_vector(const Arguments<T>& a, const Moments& m, std::uint32_t row, int vector,
                                              float (&s)[kVectorLanes<T>]) {
  if (a.t.sum) store_vector<T, kStore>(static_cast<T*>(a.t.sum) + place_of(a, row, vector), s);
#pragma unroll
  for (float& value : s) value = (value - m.mean) * m.rstd;
  store_normalised<kStore>(a, row, vector, s, [&](int which) { return load_parameter(a, row, vector, which); });
}

// Of a warp's part of a row: the mean of its elements, and the squares of the deviations from it.
struct Part {
  float mean, squares;
};

// One over the elements of the part of at most `share` vectors from `begin` on.
template <class T>
__device__ __forceinline__ float part_inverse(const Arguments<T>& a, int begin, int share) {
  return __fdividef(1.0f, static_cast<float>(min(share, a.vectors - begin) * kVectorLanes<T>));
}

// A row's moments from its warps' parts, of `share` vectors each, the last one of fewer. Deviations of means are from
// the first part's, which is a thirty-second of the row at least: that costs five bits where it is an outlier, not all.
template <class T>
__device__ __forceinline__ Moments merge(const Arguments<T>& a, const Part* parts, int share) {
  const int lane = static_cast<int>(threadIdx.x) % 32, begin = lane * share;
  const float origin = parts[0].mean;
  float sum = 0, squares = 0;
  if (begin < a.vectors) {
    const float length = static_cast<float>(min(share, a.vectors - begin) * kVectorLanes<T>);
    const float deviation = parts[lane].mean - origin;
    sum = length * deviation;
    squares = parts[lane].squares + sum * deviation;
  }
  const float mean = lane_sum<32>(sum) * a.length_inverse;
  const float variance = lane_sum<32>(squares) * a.length_inverse - mean * mean;
  return {origin + mean, rsqrtf(fmaxf(variance, 0.0f) + a.eps)};
}

// In two passes, wherever the row is: squares about any one element of it lose digits where that element is an outlier.
// A lane has every kStride-th vector of those before `end`, from `lane` on; `load(v, s)` gives vector v as floats.
template <class T, int kStride, class Load>
__device__ __forceinline__ Part row_part(int lane, int end, float inverse, const Load& load) {
  const auto for_each = [&](const auto& add) {
#pragma unroll 1
    for (int v = lane; v < end; v += kStride) {
      float s[kVectorLanes<T>];
      load(v, s);
#pragma unroll
      for (const float value : s) add(value);
    }
  };
  float sum = 0, squares = 0;
  for_each([&](float value) { sum += value; });
  const float mean = lane_sum<kStride>(sum) * inverse;
  for_each([&](float value) { squares += (value - mean) * (value - mean); });
  return {mean, lane_sum<kStride>(squares)};
}

// Calls run(integral_constant) with the team, one of the kCount from 4 on.
template <int kCount, class Run>
Status with_team(int team, const Run& run) {
  return with_tile<kCount>(std::bit_width(static_cast<unsigned>(team)) - 3,
                           [&]<int kLog>() { return run(std::integral_constant<int, 4 << kLog>{}); });
}

}  // namespace noisefloor::layernorm
