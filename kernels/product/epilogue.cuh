// What every GPU variant of a product does to its finished fp32 sums, one order of operations for gemm and the
// convolutions:
//   out = gain * blended(act(factor * sum + addend + shift) + residual)
// The ptx_sm90a variants do the same to their accumulators (sm90a_epilogue.cuh). Device code only.
#pragma once

#include <cstdint>

#include "kernels/device/activations.cuh"
#include "kernels/device/vector.cuh"

namespace noisefloor::product {

// kCount neighbouring elements, moved by the widest access that their size allows.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) Run {
  T v[kCount];
};

// The 8 elements of 16 bytes.
template <class T>
__device__ __forceinline__ const Run<T, 8>& run_of(const uint4& bits) {
  return reinterpret_cast<const Run<T, 8>&>(bits);
}

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

__device__ __forceinline__ float blended(float x, float other, float share) {
  return fmaf(share, other - x, x);
}

// What an op's outputs may take beside bias, a shift of their image, an activation and a residual; what they never do
// costs nothing.
struct Terms {
  bool factors = false;  // a factor and a further addend of each column, else one factor
  bool gate = false;     // the upper half of B's rows gates the lower
  bool blend = false, gain = false, parts = false;
  bool weighs = false;  // gain is a factor of the residual alone
};

// Passed by value to a kernel. `Op` has the activations: apply<T>(act, v) to all values of an array, its switch outside
// of the loop (`act` is the same for every thread, so it does not diverge).
template <class T, class Op>
struct Epilogue {
  using Element = T;
  static constexpr Terms kTerms = Op::kTerms;

  // What every output takes stands first, so that a small kernel reads few lines of its arguments.
  int columns = 0, part = 0, rows = 0;  // of a part: all columns where the output is one matrix
  typename Op::Activation act{};
  float scale = 1;
  bool gated = false;
  T* out = nullptr;
  const T *bias = nullptr, *image_shift = nullptr, *residual = nullptr;  // null: none
  const T *factors = nullptr, *addends = nullptr, *blend = nullptr;      // factors, addends: of columns
  const float* share = nullptr;                                          // of blend
  float gain = 1;

  // What a sum of row `at` of B is multiplied by, then what is added (with a gate, column j's is row columns + j).
  __device__ __forceinline__ void channel(std::int64_t at, float& factor, float& addend) const {
    factor = kTerms.factors ? 1.0f : scale;
    addend = bias ? to_float(bias[at]) : 0.0f;
    if constexpr (kTerms.factors) {
      if (factors) factor = to_float(factors[at]), addend *= factor;
      if (addends) addend += to_float(addends[at]);
    }
  }
  template <int kCount>
  __device__ __forceinline__ void activate(float (&v)[kCount]) const {
    Op::template apply<T>(act, v);
  }
  __device__ __forceinline__ static float gate(float value, float gate_sum) { return value * gelu<T>(gate_sum); }
  // What follows a sum's factor and addend, of neighbouring columns of a row. gates() are the gated ones' sums, with
  // theirs; shift and residual are zeros where there is none; between() comes ahead of the gain.
  template <int kCount, class Gates, class Between>
  __device__ __forceinline__ void finish(float (&v)[kCount], const Run<T, kCount>& shift, const Gates& gates,
                                         const Run<T, kCount>& residual, const Between& between) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) v[i] += to_float(shift.v[i]);
    if (kTerms.gate && gated) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) v[i] = gate(v[i], gates(i));
    } else {
      activate(v);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if constexpr (kTerms.weighs)
        v[i] = fmaf(gain, to_float(residual.v[i]), v[i]);
      else
        v[i] += to_float(residual.v[i]);
    }
    between();
    if constexpr (kTerms.gain) {
#pragma unroll
      for (float& x : v) x *= gain;
    }
  }
  // Where element (row, column) lies in the output.
  __device__ __forceinline__ std::int64_t at(std::int64_t row, std::int64_t column) const {
    if (!kTerms.parts || part == columns) return row * columns + column;
    const int which = static_cast<int>(column) / part;
    return (std::int64_t{which} * (rows - 1) + row) * part + column;
  }
};

// Finishes kCount neighbouring columns of any rows: what belongs to the columns is loaded once. `column` is a multiple
// of kCount, so that with columns % kCount == 0 every access is a whole Run.
template <class E, int kCount>
struct Columns {
  using T = typename E::Element;
  using R = Run<T, kCount>;
  static constexpr int kGates = E::kTerms.gate ? kCount : 1;
  struct Ahead {  // what a row's outputs take, asked for before their sums are there; zeros where there is none
    R residual{}, shift{};
  };

  const E& epilogue;
  std::int64_t column;
  bool whole;
  float factor[kCount], addend[kCount], gate_addend[kGates];

  __device__ __forceinline__ Columns(const E& shared, std::int64_t first)
      : epilogue(shared), column(first), whole(shared.columns % kCount == 0) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      factor[i] = E::kTerms.factors ? 1.0f : epilogue.scale, addend[i] = 0;
      const bool exists = column + i < epilogue.columns;
      if (exists) epilogue.channel(column + i, factor[i], addend[i]);
      if constexpr (E::kTerms.gate) {
        float same;
        gate_addend[i] = 0;
        if (exists && epilogue.gated) epilogue.channel(epilogue.columns + column + i, same, gate_addend[i]);
      }
    }
  }

  __device__ __forceinline__ R load(const T* __restrict__ from) const {
    R run{};
    if (column >= epilogue.columns) return run;
    if (whole) return *reinterpret_cast<const R*>(from + column);
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (column + i < epilogue.columns) run.v[i] = from[column + i];
    return run;
  }
  __device__ __forceinline__ Ahead ahead(std::int64_t image, std::int64_t residual_row) const {
    Ahead some;
    if (epilogue.residual) some.residual = load(epilogue.residual + residual_row * epilogue.columns);
    if (epilogue.image_shift) some.shift = load(epilogue.image_shift + image * epilogue.columns);
    return some;
  }

  // Stores the outputs that exist of `row`, which does; `sums` (and `gates`) are the sums of products.
  __device__ __forceinline__ void store(std::int64_t row, const float (&sums)[kCount], const float (&gates)[kCount],
                                        const Ahead& ahead) const {
    if (column >= epilogue.columns) return;
    float x[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] = fmaf(factor[i], sums[i], addend[i]);
    const auto gate = [&](int i) { return fmaf(factor[i], gates[i], gate_addend[i % kGates]); };
    epilogue.finish(x, ahead.shift, gate, ahead.residual, [&] {
      if (!E::kTerms.blend || !epilogue.blend) return;
      const T* other = epilogue.blend + row * epilogue.columns + column;
      const float share = *epilogue.share;
#pragma unroll
      for (int i = 0; i < kCount; ++i)  // one by one: a Run more would spill where sums fill the registers
        if (column + i < epilogue.columns) x[i] = blended(x[i], to_float(other[i]), share);
    });
    R out;
#pragma unroll
    for (int i = 0; i < kCount; ++i) out.v[i] = from_float<T>(x[i]);
    T* to = epilogue.out + epilogue.at(row, column);
    if (whole) {
      *reinterpret_cast<R*>(to) = out;
      return;
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (column + i < epilogue.columns) to[i] = out.v[i];
  }
};

}  // namespace noisefloor::product
