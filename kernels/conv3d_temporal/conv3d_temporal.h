// conv3d_temporal: a 3x1x1 convolution along the frames of a video, in place of its layout: no permutation.
//
//   y[b, f, s, co] = sum over t in 0..2, ci of x[b, f + t - 1, s, ci] * w[co, t, ci]  (+ bias[co]) (+ residual[b, f, s,
//   co])
//
// Frames before the first and after the last are 0. s runs over the hw pixels of a frame.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/core/op.h"

namespace noisefloor::conv3d_temporal {

struct Problem {
  std::int64_t batch = 1;   // videos
  std::int64_t frames = 1;  // of each
  std::int64_t hw = 1;      // height * width
  std::int64_t cin = 1;
  std::int64_t cout = 1;
  bool bias = true;
  bool residual = false;

  std::int64_t pixels() const { return batch * frames * hw; }
};

// All of the problem's dtype, dense, 16-byte aligned, not overlapping y; null where the problem has no such tensor.
struct Tensors {
  const void* x = nullptr;         // [batch, frames, hw, cin]
  const void* w = nullptr;         // [cout, 3, cin]
  const void* bias = nullptr;      // [cout]
  const void* residual = nullptr;  // [batch, frames, hw, cout]
  void* y = nullptr;               // [batch, frames, hw, cout]
};

struct Definition {
  static constexpr const char* name = "conv3d_temporal";
  using Problem = conv3d_temporal::Problem;
  using Tensors = conv3d_temporal::Tensors;

  static std::span<const DType> dtypes();  // bf16, fp16, fp32
  static void fields(Problem& problem, FieldVisitor& visitor);
  // Throws InvalidInput on a tensor of 2^31 pixels or more than 2^40 elements.
  static void check(const Problem& problem);
  static std::vector<TensorSpec> tensors(const Problem& problem, DType dtype);
  static Tensors bind(const Problem& problem, PointerCursor pointers);
  // 2 FLOPs per output, tap and input channel, the zeros before and after the video included.
  static Cost cost(const Problem& problem, DType dtype);
  static Tolerance tolerance(const Problem& problem, DType dtype);
  static void reference(const Problem& problem, DType dtype, std::span<const HostTensor> inputs, std::size_t output,
                        std::span<const std::int64_t> elements, std::span<double> values);
  static std::span<const Variant<Definition>> variants();  // best last
};

}  // namespace noisefloor::conv3d_temporal
