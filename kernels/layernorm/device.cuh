// What the fast GPU variants of layernorm share: teams of lanes that own a row, its moments, and its way out.
#pragma once

#include "kernels/core/dispatch.cuh"
#include "kernels/core/divider.cuh"
#include "kernels/core/stream.cuh"
#include "kernels/layernorm/launchers.h"

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

// Sums of d = s - origin and of d^2, to the moments of the row.
template <class T>
__device__ __forceinline__ Moments finish_moments(const Arguments<T>& a, float origin, float sum, float squares) {
  const float offset = sum * a.length_inverse;
  const float variance = fmaxf(squares * a.length_inverse - offset * offset, 0.0f);
  return {origin + offset, rsqrtf(variance + a.eps)};
}

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

// Normalises a vector of row `row` (below `rows`) and stores it, and the sum where that is an output.
template <class T>
__device__ __forceinline__ void finish_vector(const Arguments<T>& a, const Moments& m, std::uint32_t row, int vector,
                                              float (&s)[kVectorLanes<T>]) {
  constexpr int kLanes = kVectorLanes<T>;
  const std::int64_t place = (static_cast<std::int64_t>(row) * a.vectors + vector) * kLanes;
  if (a.t.sum) store_vector<T, CacheHint::once>(static_cast<T*>(a.t.sum) + place, s);
  float first[kLanes], second[kLanes];
#pragma unroll
  for (int i = 0; i < kLanes; ++i) s[i] = (s[i] - m.mean) * m.rstd;
  if (a.t.gamma) {
    load_vector<T, CacheHint::read_only>(static_cast<const T*>(a.t.gamma) + vector * kLanes, first);
    load_vector<T, CacheHint::read_only>(static_cast<const T*>(a.t.beta) + vector * kLanes, second);
#pragma unroll
    for (int i = 0; i < kLanes; ++i) s[i] = s[i] * first[i] + second[i];
  }
  if (a.t.scale) {
    const std::int64_t at = (static_cast<std::int64_t>(a.rows_per_image.quotient(row)) * a.vectors + vector) * kLanes;
    load_vector<T, CacheHint::read_only>(static_cast<const T*>(a.t.scale) + at, first);
    load_vector<T, CacheHint::read_only>(static_cast<const T*>(a.t.shift) + at, second);
#pragma unroll
    for (int i = 0; i < kLanes; ++i) s[i] = s[i] * (1.0f + first[i]) + second[i];
  }
  store_vector<T, CacheHint::once>(static_cast<T*>(a.t.y) + place, s);
}

// The row's first element, about which its moments are summed, so that a mean far off zero costs no bits. `load(v, s)`
// gives vector v of the row as floats.
template <class T, int kTeam, class Load>
__device__ __forceinline__ Moments row_moments(const Arguments<T>& a, float origin, int lane, const Load& load) {
  float sum = 0, squares = 0;
#pragma unroll 1
  for (int v = lane; v < a.vectors; v += kTeam) {
    float s[kVectorLanes<T>];
    load(v, s);
#pragma unroll
    for (const float value : s) {
      const float d = value - origin;
      sum += d;
      squares += d * d;
    }
  }
  return finish_moments(a, origin, team_sum<kTeam>(sum), team_sum<kTeam>(squares));
}

// Calls run(integral_constant) with the team of a row.
template <class Run>
Status with_team(int vectors, const Run& run) {
  switch (team_of(vectors)) {
    case 4:
      return run(std::integral_constant<int, 4>{});
    case 8:
      return run(std::integral_constant<int, 8>{});
    case 16:
      return run(std::integral_constant<int, 16>{});
    default:
      return run(std::integral_constant<int, 32>{});
  }
}

}  // namespace noisefloor::layernorm
