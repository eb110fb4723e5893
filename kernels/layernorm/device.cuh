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

// From the deviations `s` of a vector of row `row` (below `rows`) to its y.
template <CacheHint kStore = CacheHint::once, class T>
__device__ __forceinline__ void store_normalised(const Arguments<T>& a, float rstd, std::uint32_t row, int vector,
                                                 float (&s)[kVectorLanes<T>]) {
  constexpr int kLanes = kVectorLanes<T>;
  float first[kLanes], second[kLanes];
#pragma unroll
  for (int i = 0; i < kLanes; ++i) s[i] *= rstd;
  if (a.t.gamma) {
    load_vector<T, CacheHint::read_only>(static_cast<const T*>(a.t.gamma) + vector * kLanes, first);
    load_vector<T, CacheHint::read_only>(static_cast<const T*>(a.t.beta) + vector * kLanes, second);
#pragma unroll
    for (int i = 0; i < kLanes; ++i) s[i] = s[i] * first[i] + second[i];
  }
  if (a.t.scale) {
    const std::int64_t at = (static_cast<std::int64_t>(row / a.rows_per_image) * a.vectors + vector) * kLanes;
    load_vector<T, CacheHint::read_only>(static_cast<const T*>(a.t.scale) + at, first);
    load_vector<T, CacheHint::read_only>(static_cast<const T*>(a.t.shift) + at, second);
#pragma unroll
    for (int i = 0; i < kLanes; ++i) s[i] = s[i] * (1.0f + first[i]) + second[i];
  }
  store_vector<T, kStore>(static_cast<T*>(a.t.y) + place_of(a, row, vector), s);
}

// The same from x (+ residual), which leaves as well where the sum is an output.
template <CacheHint kStore = CacheHint::once, class T>
__device__ __forceinline__ void finish_vector(const Arguments<T>& a, const Moments& m, std::uint32_t row, int vector,
                                              float (&s)[kVectorLanes<T>]) {
  if (a.t.sum) store_vector<T, kStore>(static_cast<T*>(a.t.sum) + place_of(a, row, vector), s);
#pragma unroll
  for (float& value : s) value -= m.mean;
  store_normalised<kStore>(a, m.rstd, row, vector, s);
}

// In two passes over the row, wherever it is: squares about any one element of it lose digits where that element is an
// outlier. `load(v, s)` gives vector v of the row as floats.
template <class T, int kTeam, class Load>
__device__ __forceinline__ Moments row_moments(const Arguments<T>& a, int lane, const Load& load) {
  const auto for_each = [&](const auto& add) {
#pragma unroll 1
    for (int v = lane; v < a.vectors; v += kTeam) {
      float s[kVectorLanes<T>];
      load(v, s);
#pragma unroll
      for (const float value : s) add(value);
    }
  };
  float sum = 0, squares = 0;
  for_each([&](float value) { sum += value; });
  const float mean = team_sum<kTeam>(sum) * a.length_inverse;
  for_each([&](float value) { squares += (value - mean) * (value - mean); });
  return {mean, rsqrtf(team_sum<kTeam>(squares) * a.length_inverse + a.eps)};
}

// Calls run(integral_constant) with the team of a row.
template <class Run>
Status with_team(int vectors, const Run& run) {
  return with_tile<4>(std::bit_width(static_cast<unsigned>(team_of(vectors))) - 3,
                      [&]<int kLog>() { return run(std::integral_constant<int, 4 << kLog>{}); });
}

}  // namespace noisefloor::layernorm
