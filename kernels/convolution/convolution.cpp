#include "kernels/convolution/convolution.h"

#include <algorithm>
#include <string>

#include "kernels/core/fields.h"

namespace noisefloor::convolution {
namespace {

Axis plain_axis(std::int64_t in, int kernel, int stride, int pad) {
  Axis axis;
  axis.in = static_cast<int>(in);
  axis.out = static_cast<int>((in + 2 * pad - kernel) / stride + 1);
  axis.taps = axis.kernel_taps = kernel;
  axis.stride = stride;
  axis.origin = -pad;
  return axis;
}

Convolution with_axes(std::int64_t images, const Axis& y, const Axis& x, std::int64_t cin, std::int64_t cout) {
  Convolution convolution;
  convolution.images = static_cast<int>(images);
  convolution.cin = static_cast<int>(cin);
  convolution.cout = static_cast<int>(cout);
  convolution.y = y;
  convolution.x = x;
  return convolution;
}

Axis phased_axis(std::int64_t in) {
  Axis axis;
  axis.in = axis.out = static_cast<int>(in);
  axis.phases = axis.taps = axis.kernel_taps = 2;
  axis.origin = -1;
  axis.phase_shift = 1;
  return axis;
}

// The same phases, each with all three taps: output o of phase p looks at pixels 2 o + p - 1 and on of the large image.
Axis direct_axis(std::int64_t in) {
  Axis axis = phased_axis(in);
  axis.taps = axis.kernel_taps = 3;
  axis.stride = axis.repeat = 2;
  return axis;
}

Support takes_one_source(const Convolution& c) {
  return c.side == 0 ? supported() : unsupported("has no second source of its sums");
}

}  // namespace

Convolution plain(std::int64_t images, std::int64_t h, std::int64_t w, std::int64_t cin, std::int64_t cout, int kernel,
                  int stride, int pad) {
  return with_axes(images, plain_axis(h, kernel, stride, pad), plain_axis(w, kernel, stride, pad), cin, cout);
}

Convolution upsampled_direct(std::int64_t images, std::int64_t h, std::int64_t w, std::int64_t cin, std::int64_t cout) {
  return with_axes(images, direct_axis(h), direct_axis(w), cin, cout);
}

Convolution upsampled_phases(std::int64_t images, std::int64_t h, std::int64_t w, std::int64_t cin, std::int64_t cout) {
  Convolution convolution = with_axes(images, phased_axis(h), phased_axis(w), cin, cout);
  convolution.phase_weights = true;
  return convolution;
}

std::size_t summed_weight_bytes(std::int64_t cin, std::int64_t cout, DType dtype) {
  return static_cast<std::size_t>(4 * cout * 4 * cin) * size_of(dtype);
}

void check_extents(const char* fields, const char* what, std::int64_t pixels, std::int64_t channels) {
  constexpr std::int64_t kMaxPixels = std::int64_t{1} << 31, kMaxElements = std::int64_t{1} << 40;
  const std::string size = std::string("fields ") + fields + " make " + what + " of " + std::to_string(pixels);
  if (pixels >= kMaxPixels) refuse(size + " pixels; at most 2^31 - 1");
  if (pixels * channels > kMaxElements)
    refuse(size + " pixels, and channels x " + std::to_string(channels) + " elements; at most 2^40");
}

constexpr std::int64_t kMaxKernel = 31;

double Shape::flops() const {
  const std::int64_t met = upsample ? 4 : taps();
  return 2.0 * static_cast<double>(out_pixels()) * static_cast<double>(cout * met * cin);
}

void visit_shape(Shape& s, FieldVisitor& visitor) {
  visitor.integer("n", "images", s.n, 1, 32767);
  visitor.integer("h", "height of x in pixels", s.h, 1, 1 << 20);
  visitor.integer("w", "width of x in pixels", s.w, 1, 1 << 20);
  visitor.integer("cin", "channels of x", s.cin, 1, 65536);
  visitor.integer("cout", "channels of y", s.cout, 1, 65536);
  visitor.integer("kernel", "taps along each axis: odd, or 2 or 4 with a stride of 2", s.kernel, 1, kMaxKernel, 3);
  // Fields are visited in order: kernel is known.
  visitor.integer("stride", "pixels of x from one output to the next", s.stride, 1, 2, s.kernel % 2 == 0 ? 2 : 1);
  visitor.integer("pad", "zeros on each side, in pixels; half the kernel if not given", s.pad, 0, kMaxKernel,
                  (s.kernel - 1) / 2);
  visitor.flag("upsample", "doubles x's height and width first (nearest); needs kernel 3, stride 1, pad 1", s.upsample,
               false);
}

void check_shape(const Shape& s) {
  // The even ones are those of a transposed convolution's gradient.
  if (s.kernel % 2 == 0 && (s.kernel > 4 || s.stride != 2 || s.pad != s.kernel / 2 - 1))
    refuse("field 'kernel' is " + std::to_string(s.kernel) + "; it must be odd, from 1 to " +
           std::to_string(kMaxKernel) + ", or 2 with stride=2 and pad=0, or 4 with stride=2 and pad=1");
  if (s.upsample && (s.kernel != 3 || s.stride != 1 || s.pad != 1))
    refuse("'upsample' needs kernel=3, stride=1 and pad=1");
  if (s.column && (s.stride != 1 || s.upsample)) refuse("'column' needs stride=1 and no upsample");
  const std::int64_t shortest = s.times() * (s.column ? s.h : std::min(s.h, s.w)) + 2 * s.pad;
  if (shortest < s.kernel)
    refuse("field 'kernel' is " + std::to_string(s.kernel) + ", larger than the padded image, " +
           std::to_string(shortest));
  check_extents("n, h and w", "an input", s.n * s.h * s.w, s.cin);
  check_extents("n, h and w", "an output", s.out_pixels(), s.cout);
}

Status check_operands(const Convolution& c, const Operands& o) {
  const auto bad = [](const void* pointer, bool present) {
    return present && (pointer == nullptr || reinterpret_cast<std::uintptr_t>(pointer) % 16 != 0);
  };
  if (bad(o.x, true) || bad(o.w, true) || bad(o.bias, c.bias) || bad(o.scale, c.affine) || bad(o.shift, c.affine) ||
      bad(o.image_shift, c.image_shift) || bad(o.norm, c.norm != Norm::none) || bad(o.residual, c.residual) ||
      bad(o.side, c.side > 0) || bad(o.side_skip, c.side_skip > 0) || bad(o.w_side, c.side > 0) || bad(o.y, true) ||
      bad(o.mean, c.stats) || bad(o.m2, c.stats))
    return failure(StatusCode::invalid_argument, "convolution: a tensor is null or not 16-byte aligned");
  return success();
}

Support takes_plain_input(const Convolution& c) {
  if (c.norm != Norm::none) return unsupported("has no norm of the input");
  if (c.residual_upsample) return unsupported("adds no residual of half the height and width");
  return takes_one_source(c);
}

Support can_run_tiled(const Convolution& c, DType) {
  if (tile_count(c, kTiledTile, kTiledTile) > kMaxBlocks) return unsupported("needs at most 2^31 - 1 tiles of 128x128");
  return takes_one_source(c);
}

Support can_run_naive(const Convolution& c, DType) {
  // One thread per output, 256 a block.
  if (c.rows() * c.cout > (std::int64_t{1} << 38)) return unsupported("needs at most 2^38 outputs");
  return supported();
}

Convolution gathered_product(const Convolution& c) {
  Convolution product = c;
  product.cin = gathered_columns(c);
  for (Axis* axis : {&product.y, &product.x}) {
    Axis single;
    single.in = single.out = axis->out;
    *axis = single;
  }
  return product;
}

std::size_t ptx_sm90a_workspace_bytes(const Convolution& c, DType dtype, const DeviceInfo&) {
  if (!gathers_rows(c)) return 0;
  return static_cast<std::size_t>(c.phase_rows() * gathered_columns(c)) * size_of(dtype);
}

std::size_t ptx_sm90a_prepared_bytes(const Convolution& c, DType dtype) {
  if (c.phase_weights) return summed_weight_bytes(c.cin, c.cout, dtype);
  return gathers_rows(c) ? static_cast<std::size_t>(std::int64_t{c.cout} * gathered_columns(c)) * size_of(dtype) : 0;
}

Support can_run_ptx_sm90a(const Convolution& c, DType dtype) {
  constexpr int kFarthestCorner = 120;  // im2col boxes begin within 128 of the image's corner
  if (dtype == DType::fp32) return unsupported("needs bf16 or fp16");
  if (gathers_rows(c) && c.phases() > 1)
    return unsupported("needs cin to be a multiple of 8 where outputs fall into phases: TMA moves 16 bytes");
  if (c.y.taps > kFarthestCorner || c.x.taps > kFarthestCorner) return unsupported("needs a smaller kernel");
  if (c.rows() + 256 > kMaxBlocks) return unsupported("needs fewer than 2^31 output pixels");
  if (tile_count(c, 64, 32) > kMaxBlocks / 8) return unsupported("needs at most 2^28 tiles of 64x32");
  if (c.side > 0 && gathers_rows(c)) return unsupported("needs cin to be a multiple of 8 beside a second source");
  if (c.side % 8 != 0 || c.side_skip % 8 != 0)
    return unsupported("needs side and side_skip to be multiples of 8: TMA moves 16 bytes");
  if (c.norm != Norm::none) return unsupported("has no norm of the input");
  if (c.residual_upsample) return unsupported("adds no residual of half the height and width");
  return supported();
}

Support can_run_ptx_sm80_narrow(const Convolution& c, DType dtype) {
  const int taps = c.y.taps * c.x.taps;
  if (const Support plain = takes_plain_input(c); !plain) return plain;
  if (dtype == DType::fp32) return unsupported("needs bf16 or fp16");
  if (c.cin > kNarrowChannels) return unsupported("needs at most 32 input channels");
  if (taps == 1) return unsupported("needs several taps; one is a product");
  if (taps > kNarrowTaps || c.k() > kNarrowTerms) return unsupported("needs at most 288 terms of a sum, and 32 taps");
  if (c.input_elements() > kMaxBlocks) return unsupported("needs fewer than 2^31 elements of its input");
  if (c.rows() + kNarrowRows > kMaxBlocks || tile_count(c, kNarrowRows, 16) > kMaxBlocks)
    return unsupported("needs fewer than 2^31 output pixels, and tiles of 64x16");
  return supported();
}

std::size_t ptx_sm80_narrow_prepared_bytes(const Convolution& c, DType dtype) {
  return narrow_weight_bytes(c, dtype) + (c.phase_weights ? summed_weight_bytes(c.cin, c.cout, dtype) : 0);
}

}  // namespace noisefloor::convolution
