// Group normalisation of channels-last activations, with the activations that diffusion networks put behind it.
//
//   norm[i, s, c] = (x[i, s, c] - mean[i, g]) * rstd[i, g] * gamma[c] + beta[c],    g = c / (channels / groups)
//   y = norm                                          fusion none
//   y = silu(norm)                                    fusion silu
//   y = silu(norm * (1 + scale[i, c]) + shift[i, c])  fusion silu+ss
// `fp32_affine`: gamma and beta are fp32 whatever T is. A gain near 1 changes by less in many steps of a training than
// 16 bits tell.
// `packed`: scale and shift are the halves of one tensor's rows, scale_shift[i, c] and scale_shift[i, channels + c], as
// the product that projects an embedding to both leaves them.
// `coefficients`: not y, but a and b of y = fusion(x * a + b) for each image and channel, for a kernel that applies
// them to x as it reads it (kernels/conv2d, `norm`). Of given statistics that needs no x.
// `skip_channels`: the last of the channels lie in a tensor of their own, `skip`. A group may have channels of both.
// `down_w`: of rows of so many pixels, y is the mean of each 2x2 block of what is above, each of its four values
// rounded to T first, and x_down that of x: what two of kernels/resample, average_down2, would make of y and x. A
// network that halves an image behind a norm needs both.
//
// mean and variance (biased) are over the hw * channels / groups elements of a group; rstd = 1 / sqrt(variance + eps);
// silu(v) = v / (1 + exp(-v)). Sources: Wu and He, "Group Normalization" (ECCV 2018); the scale-shift norm is that of
// Dhariwal and Nichol, "Diffusion Models Beat GANs on Image Synthesis" (NeurIPS 2021).
#pragma once

#include <cstdint>

#include "kernels/core/definition.h"

namespace noisefloor::groupnorm {

enum class Fusion { none, silu, silu_scale_shift };

// Statistics of x that a convolution left behind it (kernels/conv2d, `stats`), so that x is read once: for every slab
// of 64 consecutive pixels of an image and every channel, the mean and M2, the sum of squared deviations from it.
// `quarters`: the pixels of even and odd row and column (row parity first) are a quarter of the image each, cut into
// slabs by itself, as a convolution behind an upsample leaves them. The last slab of an image or quarter may be
// shorter.
enum class SlabStats { none, given, quarters };
inline constexpr std::int64_t kGivenSlabRows = 64;

struct Problem {
  std::int64_t n = 1;   // images
  std::int64_t hw = 1;  // height * width (times frames, for video)
  std::int64_t channels = 1;
  std::int64_t groups = 1;  // divides channels
  Fusion fusion = Fusion::none;
  double eps = 1e-5;
  bool stats = false;                      // also write mean and rstd, as a backward pass needs them
  SlabStats slab_stats = SlabStats::none;  // whether statistics of x are given
  bool packed = false;                     // fusion silu+ss: scale and shift are one tensor
  bool coefficients = false;               // write a and b in the place of y
  bool fp32_affine = false;                // gamma and beta are fp32
  // What is normalised is the concatenation that kernels/resample would write of x and skip.
  std::int64_t skip_channels = 0;  // of the channels, the last so many: they are in skip
  std::int64_t down_w = 0;         // pixels of a row of x, where y and x_down have half as many rows and columns

  std::int64_t channels_per_group() const { return channels / groups; }
  std::int64_t elements() const { return n * hw * channels; }
  std::int64_t group_size() const { return hw * channels_per_group(); }
  constexpr std::int64_t x_channels() const { return channels - skip_channels; }
  constexpr bool down() const { return down_w > 0; }
  constexpr std::int64_t y_pixels() const { return down() ? hw / 4 : hw; }  // of an image
  // With down_w: where in x the 2x2 block of pixel `pixel` of y begins. Images have whole rows of blocks, so pixels may
  // be counted over all of them.
  constexpr std::int64_t first_of_four(std::int64_t pixel) const {
    return 2 * (pixel + pixel / (down_w / 2) * (down_w / 2));
  }
  constexpr bool given() const { return slab_stats != SlabStats::none; }
  constexpr bool reads_x() const { return !(coefficients && given()); }
  constexpr std::int64_t quarters() const { return slab_stats == SlabStats::quarters ? 4 : 1; }
  // Of given statistics: slabs of an image, and rows of slab `slab`.
  constexpr std::int64_t given_slabs() const {
    return quarters() * ((hw / quarters() + kGivenSlabRows - 1) / kGivenSlabRows);
  }
  constexpr std::int64_t given_rows(std::int64_t slab) const {
    const std::int64_t left = hw / quarters() - slab % (given_slabs() / quarters()) * kGivenSlabRows;
    return left < kGivenSlabRows ? left : kGivenSlabRows;
  }
  constexpr DType affine_dtype(DType dtype) const { return fp32_affine ? DType::fp32 : dtype; }
  bool scale_shift() const { return fusion == Fusion::silu_scale_shift; }
  // Elements from one image's scale to the next one's, and of shift alike.
  constexpr std::int64_t scale_shift_stride() const { return packed ? 2 * channels : channels; }
};

// Device pointers (host pointers for the host variant); T is the row's dtype. Null where the problem has no such
// tensor.
struct Tensors {
  const void* x = nullptr;           // T [n, hw, channels - skip_channels]; not with coefficients of given statistics
  const void* gamma = nullptr;       // T [channels], or fp32, as beta
  const void* beta = nullptr;        // T [channels]
  const void* scale = nullptr;       // T [n, channels], fusion silu+ss only; packed: scale_shift, T [n, 2 channels]
  const void* shift = nullptr;       // T [n, channels], fusion silu+ss only; packed: not read
  const float* slab_mean = nullptr;  // fp32 [n, given_slabs, channels], given statistics only, as is slab_m2
  const float* slab_m2 = nullptr;    // fp32 [n, given_slabs, channels]
  const void* skip = nullptr;        // T [n, hw, skip_channels], with skip_channels only
  void* y = nullptr;                 // T [n, y_pixels, channels]; or coefficients, fp32 [n, 2, channels]: a, then b
  void* x_down = nullptr;            // T [n, hw / 4, channels], with down_w only
  float* mean = nullptr;             // fp32 [n, groups], stats only
  float* rstd = nullptr;             // fp32 [n, groups], stats only
};

using Definition = OpDefinition<Problem, Tensors>;
extern const Definition definition;
Definition::Variants variants;  // variants.cpp; best last
// Each in the file of its name.
Definition::Launcher launch_host, launch_naive, launch_tiled, launch_tensor_core_sm80, launch_ptx_sm90a,
    launch_ptx_sm90a_grid;
Definition::Variant::WorkspaceBytes host_workspace_bytes, tiled_workspace_bytes, tensor_core_sm80_workspace_bytes,
    ptx_sm90a_grid_workspace_bytes;

// What tensor_core_sm80 can run, and what kernels that hold an image's bundle of groups on chip ask for first; here and
// in kernels/groupnorm_backward.
Definition::Way::CanRun adds_by_mma, holds_on_chip;

// ptx_sm90a where statistics are given and coefficients wanted (ptx_finish_sm90a.cu).
Status launch_finish_sm90a(const Problem&, DType, const Tensors&, const LaunchContext&);

// With `shift` where it stands in a packed tensor: behind the scale of the same image. Rows of either are
// scale_shift_stride apart.
Tensors unpacked(const Problem&, DType, Tensors);

// Of what is normalised, in host memory: `count` channels from `first` on of a pixel of all images, of x or skip or
// both.
void load_channels(const Problem&, DType, const Tensors&, std::int64_t pixel, std::int64_t first, std::int64_t count,
                   float* out);

}  // namespace noisefloor::groupnorm
