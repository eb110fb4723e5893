// The streams of elementwise (kernels/device/stream.cuh), one Map per operation that keeps the layout.
#pragma once

#include <type_traits>

#include "kernels/device/activations.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/divider.h"
#include "kernels/device/stream.cuh"
#include "kernels/elementwise/elementwise.h"

namespace noisefloor::elementwise {

// What a number becomes: of x, or of x and dy, the gradient of x.
struct Relu;
struct Silu;
struct ReluGradient;
struct SiluGradient;
struct GeluGradient;
template <class T, class Function>
__device__ __forceinline__ float value_of(float x, float dy = 0) {
  if constexpr (std::is_same_v<Function, Relu>) return relu(x);
  if constexpr (std::is_same_v<Function, Silu>) return silu<T>(x);
  if constexpr (std::is_same_v<Function, ReluGradient>) return x <= 0 ? 0.0f : dy;
  if constexpr (std::is_same_v<Function, SiluGradient>) return dy * silu_slope<T>(x);
  if constexpr (std::is_same_v<Function, GeluGradient>) return dy * gelu_slope<T>(x);
}

// A Self's of(numbers) of the kCount that lie at a place.
template <class Self, class T, int kCount>
struct PointwiseMap : FlatInputs<kCount> {
  void* y;

  template <class... Input>
  PointwiseMap(const Problem& p, const Tensors& t, Input... input)
      : FlatInputs<kCount>{{input...}, vectors_of<T>(p.total())}, y(t.y) {}
  __device__ __forceinline__ void apply(std::uint32_t vector, const uint4 (&bits)[kCount]) const {
    float v[kCount][kVectorLanes<T>];
#pragma unroll
    for (int input = 0; input < kCount; ++input) unpack_vector<T>(bits[input], v[input]);
    const Self& self = static_cast<const Self&>(*this);
    if constexpr (kCount == 1) {
#pragma unroll
      for (float& value : v[0]) value = self.of(value);
    } else {
#pragma unroll
      for (int i = 0; i < kVectorLanes<T>; ++i) v[0][i] = self.of(v[0][i], v[1][i]);
    }
    store_stream<T>(y, vector, v[0]);
  }
};

template <class T, class Function>
struct UnaryMap : PointwiseMap<UnaryMap<T, Function>, T, 1> {
  UnaryMap(const Problem& p, const Tensors& t) : UnaryMap::PointwiseMap(p, t, t.a) {}
  __device__ __forceinline__ float of(float x) const { return value_of<T, Function>(x); }
};
template <class T, class Function>
struct GradientMap : PointwiseMap<GradientMap<T, Function>, T, 2> {
  GradientMap(const Problem& p, const Tensors& t) : GradientMap::PointwiseMap(p, t, t.a, t.b) {}
  __device__ __forceinline__ float of(float x, float dy) const { return value_of<T, Function>(x, dy); }
};
template <class T>
struct ScaleMap : PointwiseMap<ScaleMap<T>, T, 1> {
  float scale;

  ScaleMap(const Problem& p, const Tensors& t)
      : ScaleMap::PointwiseMap(p, t, t.a), scale(static_cast<float>(p.scale)) {}
  __device__ __forceinline__ float of(float x) const { return x * scale; }
};
template <class T>
struct AddMap : PointwiseMap<AddMap<T>, T, 2> {
  float scale;

  AddMap(const Problem& p, const Tensors& t)
      : AddMap::PointwiseMap(p, t, t.a, t.b), scale(static_cast<float>(p.scale)) {}
  __device__ __forceinline__ float of(float a, float b) const { return (a + b) * scale; }
};

template <class T>
__device__ __forceinline__ void silu_fma(const uint4& a_bits, const uint4& b_bits, const uint4& c_bits, void* y,
                                         std::uint32_t vector) {
  float a[kVectorLanes<T>], b[kVectorLanes<T>], c[kVectorLanes<T>];
  unpack_vector<T>(a_bits, a);
  unpack_vector<T>(b_bits, b);
  unpack_vector<T>(c_bits, c);
#pragma unroll
  for (int i = 0; i < kVectorLanes<T>; ++i) a[i] = silu<T>(a[i] + b[i] * c[i]);
  store_stream<T>(y, vector, a);
}

template <class T>
struct SiluFmaMap : FlatInputs<3> {
  void* y;

  SiluFmaMap(const Problem& p, const Tensors& t) : FlatInputs<3>{{t.a, t.b, t.c}, vectors_of<T>(p.total())}, y(t.y) {}
  __device__ __forceinline__ void apply(std::uint32_t vector, const uint4 (&bits)[3]) const {
    silu_fma<T>(bits[0], bits[1], bits[2], y, vector);
  }
};

// a and c are rows of an image, which caches hold: b is the only stream.
template <class T>
struct SiluFmaRowMap : FlatInputs<1> {
  const char *a, *c;
  void* y;
  Divider per_row, per_image;  // vectors

  SiluFmaRowMap(const Problem& p, const Tensors& t)
      : FlatInputs<1>{{t.b}, vectors_of<T>(p.total())},
        a(static_cast<const char*>(t.a)),
        c(static_cast<const char*>(t.c)),
        y(t.y),
        per_row(vectors_of<T>(p.channels)),
        per_image(vectors_of<T>(p.hw * p.channels)) {}
  __device__ __forceinline__ void apply(std::uint32_t vector, const uint4 (&bits)[1]) const {
    const std::uint32_t column = vector - vector / per_row * per_row.divisor();
    const std::int64_t place = (static_cast<std::int64_t>(vector / per_image) * per_row.divisor() + column) * 16;
    silu_fma<T>(load_16_bytes<CacheHint::read_only>(a + place), bits[0], load_16_bytes<CacheHint::read_only>(c + place),
                y, vector);
  }
};

// Input 0 is the value and 1 the gate, in the two halves of a row.
template <class T>
struct GegluMap {
  static constexpr int kInputs = 2;
  const char* x;
  void* y;
  Divider per_row;  // vectors of y
  std::uint32_t vectors;

  GegluMap(const Problem& p, const Tensors& t)
      : x(static_cast<const char*>(t.a)),
        y(t.y),
        per_row(vectors_of<T>(p.channels)),
        vectors(vectors_of<T>(p.total())) {}
  __device__ __forceinline__ const void* at(int input, std::uint32_t vector) const {
    const std::int64_t row = vector / per_row;  // a vector's place in x is its own plus that of all gates before
    return x + (vector + (row + input) * per_row.divisor()) * 16;
  }
  __device__ __forceinline__ void apply(std::uint32_t vector, const uint4 (&bits)[2]) const {
    float value[kVectorLanes<T>], gate[kVectorLanes<T>];
    unpack_vector<T>(bits[0], value);
    unpack_vector<T>(bits[1], gate);
#pragma unroll
    for (int i = 0; i < kVectorLanes<T>; ++i) value[i] *= gelu<T>(gate[i]);
    store_stream<T>(y, vector, value);
  }
};

// Inputs 0 and 1 are value and gate, whose gradients lie as they do, and 2 is dy.
template <class T>
struct GegluGradientMap {
  static constexpr int kInputs = 3;
  const char *x, *dy;
  char* y;
  Divider per_row;  // vectors of dy
  std::uint32_t vectors;

  GegluGradientMap(const Problem& p, const Tensors& t)
      : x(static_cast<const char*>(t.a)),
        dy(static_cast<const char*>(t.b)),
        y(static_cast<char*>(t.y)),
        per_row(vectors_of<T>(p.channels)),
        vectors(vectors_of<T>(p.total())) {}
  __device__ __forceinline__ std::int64_t place(int half, std::uint32_t vector) const {
    return (vector + (std::int64_t{vector / per_row} + half) * per_row.divisor()) * 16;
  }
  __device__ __forceinline__ const void* at(int input, std::uint32_t vector) const {
    return input == 2 ? dy + std::int64_t{vector} * 16 : x + place(input, vector);
  }
  __device__ __forceinline__ void apply(std::uint32_t vector, const uint4 (&bits)[3]) const {
    float value[kVectorLanes<T>], gate[kVectorLanes<T>], gradient[kVectorLanes<T>];
    unpack_vector<T>(bits[0], value);
    unpack_vector<T>(bits[1], gate);
    unpack_vector<T>(bits[2], gradient);
#pragma unroll
    for (int i = 0; i < kVectorLanes<T>; ++i) {
      const float of_gate = gradient[i] * value[i] * gelu_slope<T>(gate[i]);
      value[i] = gradient[i] * gelu<T>(gate[i]);
      gate[i] = of_gate;
    }
    store_vector<T>(reinterpret_cast<T*>(y + place(0, vector)), value);
    store_vector<T>(reinterpret_cast<T*>(y + place(1, vector)), gate);
  }
};

// From T to U: 16 bytes in, 8, 16 or 32 out.
template <class T, class U>
struct CastMap : FlatInputs<1> {
  void* y;

  CastMap(const Problem& p, const Tensors& t) : FlatInputs<1>{{t.a}, vectors_of<T>(p.total())}, y(t.y) {}
  __device__ __forceinline__ void apply(std::uint32_t vector, const uint4 (&bits)[1]) const {
    constexpr int kIn = kVectorLanes<T>, kOut = kVectorLanes<U>;
    float v[kIn];
    unpack_vector<T>(bits[0], v);
    U* const out = static_cast<U*>(y) + static_cast<std::int64_t>(vector) * kIn;
    if constexpr (kOut > kIn) {
      __stcs(reinterpret_cast<uint2*>(out), make_uint2(pack_pair<U>(v[0], v[1]), pack_pair<U>(v[2], v[3])));
    } else {
#pragma unroll
      for (int part = 0; part < kIn; part += kOut)
        store_vector<U>(out + part, reinterpret_cast<float(&)[kOut]>(v[part]));
    }
  }
};

// Calls run(Map) with the map of the problem, which keeps the layout.
template <class Run>
Status with_map(const Problem& p, DType dtype, const Tensors& t, const Run& run) {
  return with_type(dtype, [&]<class T>(T) {
    switch (p.op) {
      case Operation::silu_fma:
        return p.broadcast ? run(SiluFmaRowMap<T>(p, t)) : run(SiluFmaMap<T>(p, t));
      case Operation::add:
        return run(AddMap<T>(p, t));
      case Operation::geglu:
        return run(GegluMap<T>(p, t));
      case Operation::relu:
        return run(UnaryMap<T, Relu>(p, t));
      case Operation::silu:
        return run(UnaryMap<T, Silu>(p, t));
      case Operation::relu_backward:
        return run(GradientMap<T, ReluGradient>(p, t));
      case Operation::silu_backward:
        return run(GradientMap<T, SiluGradient>(p, t));
      case Operation::gelu_backward:
        return run(GradientMap<T, GeluGradient>(p, t));
      case Operation::geglu_backward:
        return run(GegluGradientMap<T>(p, t));
      case Operation::scale:
        return run(ScaleMap<T>(p, t));
      case Operation::cast:
        return with_type(p.output_dtype(dtype), [&](auto to) { return run(CastMap<T, decltype(to)>(p, t)); });
      default:
        return failure(StatusCode::unsupported_problem, "elementwise: a change of layout is not a stream");
    }
  });
}

}  // namespace noisefloor::elementwise
