// The engine behind conv2d, conv_transpose2d and conv3d_temporal: a convolution of channels-last tensors as a matrix
// product that is never laid out in memory (implicit GEMM), with one epilogue. Not an op of its own: the ops describe
// their problems as a Convolution, and share its launchers.
//
// Rows of the product are output pixels, columns output channels, and its k extent runs over the taps of the kernel,
// then the input channels. Where outputs of even and odd coordinates take different taps (a transposed convolution of
// stride 2, or a 3x3 behind a nearest-x2 upsample), the product falls into phases, which share everything but the
// place of their taps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/core/device.h"
#include "kernels/core/dtype.h"
#include "kernels/core/status.h"
#include "kernels/core/variant.h"
#include "kernels/device/limits.h"

namespace noisefloor {
class FieldVisitor;
class TensorVisitor;
}  // namespace noisefloor

namespace noisefloor::convolution {

enum class Activation { none, silu, relu };
inline constexpr const char* kActivationNames[] = {"none", "silu", "relu"};
// What is done to the input first: x * scale + shift per image and channel, and SiLU behind it: the second half of a
// GroupNorm. Outside of the image zeros stay zeros.
enum class Norm { none, affine, affine_silu };
inline constexpr const char* kNormNames[] = {"none", "affine", "affine+silu"};

// Height or width. Output o of phase p lies at o * phases + p and takes, for tap t, the input at
// (o * stride + origin + p * phase_shift + t) / repeat (outside of the input: 0) times the kernel's tap
// first_tap + p * tap_phase + t * tap_step.
struct Axis {
  int in = 1;   // input extent
  int out = 1;  // outputs of one phase
  int phases = 1;
  int taps = 1;  // of one phase
  int stride = 1;
  int origin = 0;
  int phase_shift = 0;
  int repeat = 1;       // 2: the input is read as if each pixel stood there twice
  int kernel_taps = 1;  // of the stored weights
  int first_tap = 0;
  int tap_phase = 0;
  int tap_step = 1;

  constexpr int out_extent() const { return out * phases; }
};

// The statistics of the output are per slab: this many consecutive pixels (rows of the product, in row-major order) of
// one phase of one image; the last slab of a phase is shorter where they do not divide it.
inline constexpr int kSlabRows = 64;
inline constexpr int kPatch = 8;  // pixels along an axis, of what `patches` makes slabs of

struct Convolution {
  int images = 1;
  int cin = 1;
  int cout = 1;
  Axis y, x;
  bool phase_weights = false;  // each phase has cout rows of weights of its own, one phase after the other
  bool n_major = false;        // the weights are [cin, y.kernel_taps, x.kernel_taps, cout]: of a gradient
  Norm norm = Norm::none;
  Activation act = Activation::none;
  bool bias = false;
  bool affine = false;
  bool image_shift = false;
  bool residual = false;
  int side = 0, side_skip = 0;  // channels of the two tensors of a second source; 0: not there
  bool stats = false;
  bool patches = false;  // of 8 x 8 pixels, which the slabs of the statistics are: of one phase, whole ones only
  bool residual_upsample = false;  // the residual is half as high and wide (nearest); of one phase and even extents
  float gain = 1;

  constexpr int phases() const { return y.phases * x.phases; }
  // Of a phase, counted y-phase major. Most convolutions have one, and are spared a GPU's long division.
  constexpr int phase_y(int phase) const { return x.phases == 1 ? phase : phase / x.phases; }
  constexpr int phase_x(int phase) const { return x.phases == 1 ? 0 : phase % x.phases; }
  constexpr std::int64_t phase_pixels() const { return std::int64_t{y.out} * x.out; }  // of one image
  constexpr std::int64_t phase_rows() const { return images * phase_pixels(); }        // of the product
  constexpr std::int64_t pixels() const { return phase_pixels() * phases(); }          // of one image
  constexpr std::int64_t rows() const { return phase_rows() * phases(); }              // of all phases
  constexpr std::int64_t input_elements() const { return std::int64_t{images} * y.in * x.in * cin; }
  constexpr std::int64_t k() const { return std::int64_t{y.taps} * x.taps * cin; }  // of one phase's taps
  constexpr int side_channels() const { return side + side_skip; }
  constexpr std::int64_t weight_row() const { return std::int64_t{y.kernel_taps} * x.kernel_taps * cin; }
  constexpr std::int64_t weight_rows() const { return phase_weights ? std::int64_t{phases()} * cout : cout; }
  constexpr std::int64_t phase_slabs() const { return (phase_pixels() + kSlabRows - 1) / kSlabRows; }
  constexpr std::int64_t slabs() const { return phase_slabs() * phases(); }  // of one image
};

// Pointers in the dtype of the launch unless said otherwise, dense and 16-byte aligned, none overlapping y; null where
// the convolution has no such tensor. The ops' Tensors, too. The sum of
// an output is over its taps, and over the channels of a second source at its own pixel, which are no phase's:
//   sum += over c of  concat(side, side_skip)[i, p, c] * w_side[column, c]
//   y[i, p, c] = gain * (act((sum + bias[c]) * scale[c] + shift[c] + image_shift[i, c]) + residual[i, p, c])
struct Operands {
  const void* x = nullptr;            // [images, y.in, x.in, cin]
  const void* w = nullptr;            // [weight_rows, y.kernel_taps, x.kernel_taps, cin]
  const void* bias = nullptr;         // [cout]
  const void* scale = nullptr;        // [cout]
  const void* shift = nullptr;        // [cout]
  const void* image_shift = nullptr;  // [images, cout]
  const void* residual = nullptr;     // as y, or half as high and wide (residual_upsample)
  const float* norm = nullptr;        // fp32 [images, 2, cin]: what x is multiplied by, then what is added
  const void* side = nullptr;         // [images, y.out, x.out, side]
  const void* side_skip = nullptr;    // [images, y.out, x.out, side_skip]
  const void* w_side = nullptr;       // [cout, side + side_skip]
  void* y = nullptr;                  // [images, y.out_extent(), x.out_extent(), cout]
  float* mean = nullptr;              // fp32 [images, slabs, cout]: of y as stored, over a slab
  float* m2 = nullptr;                // fp32 [images, slabs, cout]: sum of squared deviations from mean
};

// Of a gradient, a convolution of x = dy with n_major weights w: y = factor * sum + gain * residual. Its pixel (y, x)
// is pixel (step * y + first_y, step * x + first_x) of images [height, width].
struct GradientOperands : Operands {
  float factor = 1;
  std::int64_t w_rows = 0;  // of w: cin, but where the rows of the product are laid out beforehand
  int step = 1, first_y = 0, first_x = 0, height = 1, width = 1;
};

// A row of the product and where it lies.
struct Pixel {
  std::int64_t image;
  int y, x;  // within the phase
};
constexpr Pixel row_pixel(const Convolution& c, std::int64_t row) {
  const std::int64_t pixel = row % c.phase_pixels();
  return {row / c.phase_pixels(), static_cast<int>(pixel / c.x.out), static_cast<int>(pixel % c.x.out)};
}
// The output pixel [image][y][x] of `row` of phase `phase` (y-phase major), counted over all images.
constexpr std::int64_t output_pixel(const Convolution& c, int phase, std::int64_t row) {
  if (c.phases() == 1) return row;
  const Pixel at = row_pixel(c, row);
  const std::int64_t y = std::int64_t{at.y} * c.y.phases + phase / c.x.phases;
  const std::int64_t x = std::int64_t{at.x} * c.x.phases + phase % c.x.phases;
  return (at.image * c.y.out_extent() + y) * c.x.out_extent() + x;
}
// The pixel of an image of half the height and width (both even) that an output pixel `at` repeats, both counted over
// all images.
constexpr std::int64_t repeated_pixel(int width, std::int64_t at) {
  return at / width / 2 * (width / 2) + at % width / 2;
}
// The input coordinate of a tap along one axis, or -1 outside of the input.
constexpr int input_coordinate(const Axis& axis, int out, int phase, int tap) {
  const int at = out * axis.stride + axis.origin + phase * axis.phase_shift + tap;
  if (at < 0 || at >= axis.in * axis.repeat) return -1;
  return axis.repeat == 1 ? at : at / axis.repeat;
}
// The tap of the stored kernel, row-major, behind tap (ty, tx) of a phase.
constexpr int kernel_tap(const Convolution& c, int phase, int ty, int tx) {
  const int ky = c.y.first_tap + c.phase_y(phase) * c.y.tap_phase + ty * c.y.tap_step;
  const int kx = c.x.first_tap + c.phase_x(phase) * c.x.tap_phase + tx * c.x.tap_step;
  return ky * c.x.kernel_taps + kx;
}
// The same for many taps of one phase, without a division for each.
struct KernelTaps {
  int first, step_y, step_x;

  constexpr KernelTaps(const Convolution& c, int phase)
      : first(kernel_tap(c, phase, 0, 0)), step_y(c.y.tap_step * c.x.kernel_taps), step_x(c.x.tap_step) {}
  constexpr int at(int ty, int tx) const { return first + ty * step_y + tx * step_x; }
};
// Walks the terms of a sum: taps, then input channels.
struct TapWalk {
  int tap = 0, channel = 0;

  constexpr void advance(const Convolution& c, int count) {
    for (channel += count; channel >= c.cin; channel -= c.cin) ++tap;
  }
};
// First row of the product, and number of rows, of slab `slab` of an image, within its phase.
constexpr std::int64_t slab_first(const Convolution& c, std::int64_t slab) {
  return slab % c.phase_slabs() * kSlabRows;
}
constexpr std::int64_t slab_count(const Convolution& c, std::int64_t slab) {
  const std::int64_t left = c.phase_pixels() - slab_first(c, slab);
  return left < kSlabRows ? left : kSlabRows;
}
// Row `i` of it.
constexpr std::int64_t slab_row(const Convolution& c, std::int64_t slab, std::int64_t i) {
  if (!c.patches) return slab_first(c, slab) + i;
  const std::int64_t across = c.x.out / kPatch;
  return (slab / across * kPatch + i / kPatch) * c.x.out + slab % across * kPatch + i % kPatch;
}

// An ordinary convolution, kernel x kernel, of images [h, w].
Convolution plain(std::int64_t images, std::int64_t h, std::int64_t w, std::int64_t cin, std::int64_t cout, int kernel,
                  int stride, int pad);
// A 3x3, pad 1, of the images scaled up by 2 (nearest), tap by tap: reads each pixel through its repetition.
Convolution upsampled_direct(std::int64_t images, std::int64_t h, std::int64_t w, std::int64_t cin, std::int64_t cout);
// The same as four 2x2 convolutions of the small images, one per parity of the output's coordinates. An even output
// takes its first tap from the pixel before and its other two from its own pixel, an odd one its first two from its
// own and its last from the next; taps that share a pixel are summed beforehand: 4/9 of the products. The weights are
// then [4][cout][2][2][cin], as sum_upsampled_weights lays them out.
Convolution upsampled_phases(std::int64_t images, std::int64_t h, std::int64_t w, std::int64_t cin, std::int64_t cout);
// Which of the three taps of a kernel row or column tap `tap` of phase `phase` sums: [first, last].
struct TapRange {
  int first, last;
};
constexpr TapRange summed_taps(int phase, int tap) {
  return phase == 0 ? (tap == 0 ? TapRange{0, 0} : TapRange{1, 2}) : (tap == 0 ? TapRange{0, 1} : TapRange{2, 2});
}

// Bytes of the summed weights, in `dtype`; and their sums, in fp32, rounded once, on context.stream.
std::size_t summed_weight_bytes(std::int64_t cin, std::int64_t cout, DType dtype);
Status sum_upsampled_weights(std::int64_t cin, std::int64_t cout, DType dtype, const void* w, void* summed,
                             const LaunchContext& context);

// Throws InvalidInput where `what` ("an input"), of so many pixels by `fields`, is larger than the engine takes.
void check_extents(const char* fields, const char* what, std::int64_t pixels, std::int64_t channels);

// What conv2d and its gradients say of it: fields of their problems.
struct Shape {
  std::int64_t n = 1;    // images
  std::int64_t h = 1;    // of x
  std::int64_t w = 1;    // of x
  std::int64_t cin = 1;  // channels of x
  std::int64_t cout = 1;
  std::int64_t kernel = 3;  // odd
  std::int64_t stride = 1;  // 1 or 2
  std::int64_t pad = 1;
  bool upsample = false;  // x's pixels are repeated 2x2; 3x3, stride 1, pad 1 only
  bool column = false;    // of a gradient: the kernel is kernel x 1, without zeros beside it, as conv3d_temporal's

  std::int64_t times() const { return upsample ? 2 : 1; }
  std::int64_t kernel_w() const { return column ? 1 : kernel; }
  std::int64_t pad_w() const { return column ? 0 : pad; }
  std::int64_t out_h() const { return (times() * h + 2 * pad - kernel) / stride + 1; }
  std::int64_t out_w() const { return (times() * w + 2 * pad_w() - kernel_w()) / stride + 1; }
  std::int64_t out_pixels() const { return n * out_h() * out_w(); }
  std::int64_t taps() const { return kernel * kernel_w(); }
  double flops() const;  // of the convolution and of either gradient; behind an upsample with the taps that meet summed
};
void visit_shape(Shape& shape, FieldVisitor& visitor);
void check_shape(const Shape& shape);

// Whether pointers that must be there are, 16-byte aligned.
Status check_operands(const Convolution& convolution, const Operands& operands);

using Launcher = Status(const Convolution&, DType, const Operands&, const Scratch&, const LaunchContext&);

// All cores of the host. `prepared` are the weights as prepare_host packs them, from the stored weights `w` and
// `w_side` (of upsampled_phases: w is [cout][3][3][cin]).
Launcher launch_host;
std::size_t host_prepared_bytes(const Convolution& convolution, DType dtype);
Status prepare_host(const Convolution& convolution, DType dtype, const Operands& weights, void* prepared,
                    const LaunchContext& context);

// Whether x is taken as it is, and nothing else: of the variants that do nothing to it.
Support takes_plain_input(const Convolution& convolution);

// The variants on GPUs, each in the file of its name; `can_run_*` say what they need. Narrow: few input channels under
// several taps, where a tile's patches and weights lie whole in shared memory. Halo: all taps of a tile from one load
// of its pixels and their neighbours; it reads ptx_sm90a's prepared weights.
Launcher launch_naive, launch_tiled, launch_tensor_core_sm80, launch_ptx_sm80_narrow, launch_ptx_sm90a,
    launch_ptx_sm90a_halo;
using CanRun = Support(const Convolution&, DType);
CanRun can_run_naive, can_run_tiled, can_run_tensor_core_sm80, can_run_ptx_sm80_narrow, can_run_ptx_sm90a,
    can_run_ptx_sm90a_halo;
using WorkspaceBytes = std::size_t(const Convolution&, DType, const DeviceInfo&);
WorkspaceBytes tensor_core_sm80_workspace_bytes, ptx_sm90a_workspace_bytes;
// Weights that are read in place of the stored ones, if any: ordered (narrow), summed (of an upsample), or padded.
using PreparedBytes = std::size_t(const Convolution&, DType);
PreparedBytes ptx_sm80_narrow_prepared_bytes, ptx_sm90a_prepared_bytes;
using Prepare = Status(const Convolution&, DType, const void* w, bool summed, void* prepared, const LaunchContext&);
Prepare prepare_ptx_sm80_narrow, prepare_ptx_sm90a;
using ListChoices = std::vector<Choice>(const Convolution&, DType, const DeviceInfo&);
ListChoices schedule_choices, halo_choices;
// Whether ptx_sm90a lays the rows of the product out beforehand (channels that TMA cannot address), how long they are
// then, and the 1x1 convolution that is left to do.
constexpr bool gathers_rows(const Convolution& c) {
  return c.cin % 8 != 0;
}
constexpr int gathered_columns(const Convolution& c) {
  return static_cast<int>((c.k() + 7) / 8 * 8);
}
Convolution gathered_product(const Convolution& convolution);

// Tiles of `rows` of the product x `columns` that cover all phases; none straddles two.
constexpr std::int64_t tile_count(const Convolution& c, std::int64_t rows, std::int64_t columns) {
  return c.phases() * ((c.phase_rows() + rows - 1) / rows) * ((c.cout + columns - 1) / columns);
}
inline constexpr int kTiledTile = 128;

inline constexpr int kNarrowTaps = 32;                    // one bit each
inline constexpr int kNarrowChannels = 32;                // of the input, at most
inline constexpr int kNarrowTerms = 9 * kNarrowChannels;  // of a sum: a 3x3 of as many
inline constexpr int kNarrowRows = 64;                    // of a tile

// Steps of 16 terms; a row of so many in shared memory, in bytes. 16 more bytes than the terms take make its length an
// odd multiple of 16, so that eight rows of an ldmatrix lie in different banks.
constexpr int narrow_steps(std::int64_t terms) {
  return static_cast<int>((terms + 15) / 16);
}
constexpr int narrow_row_bytes(std::int64_t terms) {
  return narrow_steps(terms) * 32 + 16;
}

// Of the weights, each row in whole steps: [phases][cout][steps * 16].
constexpr std::size_t narrow_weight_bytes(const Convolution& c, DType dtype) {
  return static_cast<std::size_t>(std::int64_t{c.phases()} * c.cout * narrow_steps(c.k()) * 16) * size_of(dtype);
}

}  // namespace noisefloor::convolution
