// Group normalisation of channels-last activations, with the activations that diffusion networks put behind it.
//
//   norm[i, s, c] = (x[i, s, c] - mean[i, g]) * rstd[i, g] * gamma[c] + beta[c],    g = c / (channels / groups)
//   y = norm                                          fusion none
//   y = silu(norm)                                    fusion silu
//   y = silu(norm * (1 + scale[i, c]) + shift[i, c])  fusion silu+ss
//
// mean and variance (biased) are over the hw * channels / groups elements of a group; rstd = 1 / sqrt(variance + eps);
// silu(v) = v / (1 + exp(-v)). Sources: Wu and He, "Group Normalization" (ECCV 2018); the scale-shift norm is that of
// Dhariwal and Nichol, "Diffusion Models Beat GANs on Image Synthesis" (NeurIPS 2021).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/core/op.h"

namespace noisefloor::groupnorm {

enum class Fusion { none, silu, silu_scale_shift };

struct Problem {
  std::int64_t n = 1;   // images
  std::int64_t hw = 1;  // height * width (times frames, for video)
  std::int64_t channels = 1;
  std::int64_t groups = 1;  // divides channels
  Fusion fusion = Fusion::none;
  double eps = 1e-5;
  bool stats = false;  // also write mean and rstd, as a backward pass needs them

  std::int64_t channels_per_group() const { return channels / groups; }
  std::int64_t elements() const { return n * hw * channels; }
  std::int64_t group_size() const { return hw * channels_per_group(); }
  bool scale_shift() const { return fusion == Fusion::silu_scale_shift; }
};

// Device pointers (host pointers for the host variant); T is the row's dtype. Null where the problem has no such
// tensor.
struct Tensors {
  const void* x = nullptr;      // T [n, hw, channels]
  const void* gamma = nullptr;  // T [channels]
  const void* beta = nullptr;   // T [channels]
  const void* scale = nullptr;  // T [n, channels], fusion silu+ss only
  const void* shift = nullptr;  // T [n, channels], fusion silu+ss only
  void* y = nullptr;            // T [n, hw, channels]
  float* mean = nullptr;        // fp32 [n, groups], stats only
  float* rstd = nullptr;        // fp32 [n, groups], stats only
};

struct Definition {
  static constexpr const char* name = "groupnorm";
  using Problem = groupnorm::Problem;
  using Tensors = groupnorm::Tensors;

  static std::span<const DType> dtypes();
  static void fields(Problem&, FieldVisitor&);
  static void check(const Problem&);
  static std::vector<TensorSpec> tensors(const Problem&, DType);
  static Tensors bind(const Problem&, PointerCursor);
  static Cost cost(const Problem&, DType);
  static Tolerance tolerance(const Problem&, DType);
  static void reference(const Problem&, DType, std::span<const HostTensor>, std::size_t output,
                        std::span<const std::int64_t> elements, std::span<double> values);
  static std::span<const Variant<Definition>> variants();
};

}  // namespace noisefloor::groupnorm
