// What the fast GPU variants of layernorm share: teams of lanes that own a row, its moments, and its way out.
#pragma once

#include <bit>

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

template <int kTeam>
__device__ __forceinline__ float team_sum(float value) {
#pragma unroll
  for (int mask = kTeam / 2; mask > 0; mask /= 2) value += __shfl_xor_sync(0xffffffffu, value, mask);
  return value;
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

// Where the scale of a vector of row `row` lies, and its shift.
template <class T>
__device__ __forceinline__ std::int64_t image_place(const Arguments<T>& a, std::uint32_t row, int vector) {
  return (static_cast<std::int64_t>(row / a.rows_per_image) * a.vectors + vector) * kVectorLanes<T>;
}

// Gamma, beta, scale and shift of a vector, so far as there are any: for those who want them under way early.
template <class T>
__device__ __forceinline__ void load_parameters(const Arguments<T>& a, std::uint32_t row, int vector, uint4 (&to)[4]) {
  const auto load = [](const void* from, std::int64_t at) {
    return load_16_bytes<CacheHint::read_only>(static_cast<const T*>(from) + at);
  };
  if (a.t.gamma) {
    to[0] = load(a.t.gamma, vector * kVectorLanes<T>);
    to[1] = load(a.t.beta, vector * kVectorLanes<T>);
  }
  if (a.t.scale) {
    to[2] = load(a.t.scale, image_place(a, row, vector));
    to[3] = load(a.t.shift, image_place(a, row, vector));
  }
}

// From the normalised `s` of a vector of row `row` (below `rows`) to its y; by its parameters, where they are kEarly.
template <CacheHint kStore = CacheHint::once, bool kEarly = false, class T>
__device__ __forceinline__ void store_normalised(const Arguments<T>& a, std::uint32_t row, int vector,
                                                 float (&s)[kVectorLanes<T>], const uint4* parameters = nullptr) {
  constexpr int kLanes = kVectorLanes<T>;
  float first[kLanes], second[kLanes];
  if (a.t.gamma) {
    if constexpr (kEarly) {
      unpack_vector<T>(parameters[0], first);
      unpack_vector<T>(parameters[1], second);
    } else {
      load_vector<T, CacheHint::read_only>(static_cast<const T*>(a.t.gamma) + vector * kLanes, first);
      load_vector<T, CacheHint::read_only>(static_cast<const T*>(a.t.beta) + vector * kLanes, second);
    }
#pragma unroll
    for (int i = 0; i < kLanes; ++i) s[i] = s[i] * first[i] + second[i];
  }
  if (a.t.scale) {
    if constexpr (kEarly) {
      unpack_vector<T>(parameters[2], first);
      unpack_vector<T>(parameters[3], second);
    } else {
      const std::int64_t at = image_place(a, row, vector);
      load_vector<T, CacheHint::read_only>(static_cast<const T*>(a.t.scale) + at, first);
      load_vector<T, CacheHint::read_only>(static_cast<const T*>(a.t.shift) + at, second);
    }
#pragma unroll
    for (int i = 0; i < kLanes; ++i) s[i] = s[i] * (1.0f + first[i]) + second[i];
  }
  store_vector<T, kStore>(static_cast<T*>(a.t.y) + place_of(a, row, vector), s);
}

// From its deviations.
template <CacheHint kStore = CacheHint::once, class T>
__device__ __forceinline__ void store_deviations(const Arguments<T>& a, float rstd, std::uint32_t row, int vector,
                                                 float (&s)[kVectorLanes<T>]) {
#pragma unroll
  for (int i = 0; i < kVectorLanes<T>; ++i) s[i] *= rstd;
  store_normalised<kStore>(a, row, vector, s);
}

// The same from x (+ residual), which leaves as well where the sum is an output.
template <CacheHint kStore = CacheHint::once, class T>
__device__ __forceinline__ void finish_vector(const Arguments<T>& a, const Moments& m, std::uint32_t row, int vector,
                                              float (&s)[kVectorLanes<T>]) {
  if (a.t.sum) store_vector<T, kStore>(static_cast<T*>(a.t.sum) + place_of(a, row, vector), s);
#pragma unroll
  for (float& value : s) value -= m.mean;
  store_deviations<kStore>(a, m.rstd, row, vector, s);
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
  const float mean = team_sum<32>(sum) * a.length_inverse;
  const float variance = team_sum<32>(squares) * a.length_inverse - mean * mean;
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
  const float mean = team_sum<kStride>(sum) * inverse;
  for_each([&](float value) { squares += (value - mean) * (value - mean); });
  return {mean, team_sum<kStride>(squares)};
}

// Calls run(integral_constant) with the team, one of the kCount from 4 on.
template <int kCount, class Run>
Status with_team(int team, const Run& run) {
  return with_tile<kCount>(std::bit_width(static_cast<unsigned>(team)) - 3,
                           [&]<int kLog>() { return run(std::integral_constant<int, 4 << kLog>{}); });
}

}  // namespace noisefloor::layernorm
