// conv_transpose2d: a transposed convolution of stride 2 that doubles channels-last images, 2x2 without overlap or 4x4
// with a pad of 1.
//
//   y[i, oy, ox, co] = act(sum over iy, ix, ky, kx, ci of x[i, iy, ix, ci] * w[co, ky, kx, ci] + bias[co]),
//       over the terms with 2 iy + ky - pad = oy and 2 ix + kx - pad = ox;  pad = 0 for 2x2, 1 for 4x4
//
// The output is [2h, 2w]. PyTorch's conv_transpose2d keeps its weights as [cin, cout, ky, kx].
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/convolution/convolution.h"
#include "kernels/core/op.h"

namespace noisefloor::conv_transpose2d {

using convolution::Activation;  // none, silu, relu

struct Problem {
  std::int64_t n = 1;  // images
  std::int64_t h = 1;  // of x
  std::int64_t w = 1;  // of x
  std::int64_t cin = 1;
  std::int64_t cout = 1;
  std::int64_t kernel = 4;  // 2 or 4
  Activation act = Activation::none;
  bool bias = true;

  std::int64_t pad() const { return kernel == 4 ? 1 : 0; }
};

// All of the problem's dtype, dense, 16-byte aligned, not overlapping y; null where the problem has no such tensor.
struct Tensors {
  const void* x = nullptr;     // [n, h, w, cin]
  const void* w = nullptr;     // [cout, kernel, kernel, cin]
  const void* bias = nullptr;  // [cout]
  void* y = nullptr;           // [n, 2h, 2w, cout]
};

struct Definition {
  static constexpr const char* name = "conv_transpose2d";
  using Problem = conv_transpose2d::Problem;
  using Tensors = conv_transpose2d::Tensors;

  static std::span<const DType> dtypes();  // bf16, fp16, fp32
  static void fields(Problem& problem, FieldVisitor& visitor);
  // Throws InvalidInput on another kernel than 2 or 4, and a tensor of 2^31 pixels or more than 2^40 elements.
  static void check(const Problem& problem);
  static std::vector<TensorSpec> tensors(const Problem& problem, DType dtype);
  static Tensors bind(const Problem& problem, PointerCursor pointers);
  // 2 FLOPs per output, input channel and the 1 (2x2) or 4 (4x4) taps that meet an output, zeros outside included.
  static Cost cost(const Problem& problem, DType dtype);
  static Tolerance tolerance(const Problem& problem, DType dtype);
  static void reference(const Problem& problem, DType dtype, std::span<const HostTensor> inputs, std::size_t output,
                        std::span<const std::int64_t> elements, std::span<double> values);
  static std::span<const Variant<Definition>> variants();  // best last
};

}  // namespace noisefloor::conv_transpose2d
