#include "kernels/conv2d/conv2d.h"

#include <cmath>
#include <string>

namespace noisefloor::conv2d {
namespace {

constexpr const char* kActivationNames[] = {"none", "silu", "relu"};
constexpr DType kDTypes[] = {DType::bf16, DType::fp16, DType::fp32};
constexpr std::int64_t kMaxKernel = 31;
constexpr std::int64_t kMaxPixels = std::int64_t{1} << 31;
constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;

std::string text(std::int64_t value) {
  return std::to_string(value);
}

void check_tensor(const char* what, std::int64_t pixels, std::int64_t channels) {
  if (pixels >= kMaxPixels)
    throw InvalidInput("problem: fields n, h and w make " + std::string(what) + " of " + text(pixels) +
                       " pixels; at most 2^31 - 1");
  if (pixels * channels > kMaxElements)
    throw InvalidInput("problem: fields n, h, w and channels make " + std::string(what) + " of " + text(pixels) +
                       " x " + text(channels) + " elements; at most 2^40");
}

}  // namespace

std::int64_t Problem::slabs() const {
  return phases() * ((out_h() * out_w() / phases() + convolution::kSlabRows - 1) / convolution::kSlabRows);
}

std::span<const DType> Definition::dtypes() {
  return kDTypes;
}

void Definition::fields(Problem& p, FieldVisitor& visitor) {
  visitor.integer("n", p.n, 1, 32767);
  visitor.integer("h", p.h, 1, 1 << 20);
  visitor.integer("w", p.w, 1, 1 << 20);
  visitor.integer("cin", p.cin, 1, 65536);
  visitor.integer("cout", p.cout, 1, 65536);
  visitor.integer("kernel", p.kernel, 1, kMaxKernel, 3);
  visitor.integer("stride", p.stride, 1, 2, 1);
  visitor.integer("pad", p.pad, 0, kMaxKernel, p.kernel / 2);  // fields are visited in order: kernel is known
  visitor.flag("upsample", p.upsample, false);
  visitor.enumeration<Activation>("act", p.act, kActivationNames, Activation::none);
  visitor.flag("bias", p.bias, true);
  visitor.flag("affine", p.affine, false);
  visitor.flag("image_shift", p.image_shift, false);
  visitor.flag("residual", p.residual, false);
  visitor.real("gain", p.gain, -1e3, 1e3, 1.0);
  visitor.flag("stats", p.stats, false);
}

void Definition::check(const Problem& p) {
  if (p.kernel % 2 == 0)
    throw InvalidInput("problem: field 'kernel' is " + text(p.kernel) + "; it must be odd, from 1 to " +
                       text(kMaxKernel));
  if (p.upsample && (p.kernel != 3 || p.stride != 1 || p.pad != 1))
    throw InvalidInput("problem: 'upsample' needs kernel=3, stride=1 and pad=1");
  const std::int64_t shortest = (p.upsample ? 2 : 1) * std::min(p.h, p.w) + 2 * p.pad;
  if (shortest < p.kernel)
    throw InvalidInput("problem: field 'kernel' is " + text(p.kernel) + ", larger than the padded image, " +
                       text(shortest));
  check_tensor("an input", p.n * p.h * p.w, p.cin);
  check_tensor("an output", p.n * p.out_h() * p.out_w(), p.cout);
}

// The sums have a standard deviation of 1 away from the borders, whatever cin; so has everything added to them, about.
std::vector<TensorSpec> Definition::tensors(const Problem& p, DType dtype) {
  const Fill unit{Fill::Kind::normal, 0, 1};
  const Fill weights{Fill::Kind::normal, 0, 1 / std::sqrt(static_cast<double>(p.kernel * p.kernel * p.cin))};
  const std::vector<std::int64_t> output{p.n, p.out_h(), p.out_w(), p.cout};
  std::vector<TensorSpec> specs;
  specs.push_back({"x", {p.n, p.h, p.w, p.cin}, dtype, Role::in, unit});
  specs.push_back({"w", {p.cout, p.kernel, p.kernel, p.cin}, dtype, Role::in, weights});
  if (p.bias) specs.push_back({"bias", {p.cout}, dtype, Role::in, unit});
  if (p.affine) {
    specs.push_back({"scale", {p.cout}, dtype, Role::in, {Fill::Kind::normal, 1, 0.25}});
    specs.push_back({"shift", {p.cout}, dtype, Role::in, unit});
  }
  if (p.image_shift) specs.push_back({"image_shift", {p.n, p.cout}, dtype, Role::in, unit});
  if (p.residual) specs.push_back({"residual", output, dtype, Role::in, unit});
  specs.push_back({"y", output, dtype, Role::out, {}});
  if (p.stats) {
    specs.push_back({"mean", {p.n, p.slabs(), p.cout}, DType::fp32, Role::out, {}});
    specs.push_back({"m2", {p.n, p.slabs(), p.cout}, DType::fp32, Role::out, {}});
  }
  return specs;
}

Tensors Definition::bind(const Problem& p, PointerCursor pointers) {
  Tensors t;
  t.x = pointers.next();
  t.w = pointers.next();
  t.bias = pointers.next_if(p.bias);
  t.scale = pointers.next_if(p.affine);
  t.shift = pointers.next_if(p.affine);
  t.image_shift = pointers.next_if(p.image_shift);
  t.residual = pointers.next_if(p.residual);
  t.y = pointers.next();
  t.mean = static_cast<float*>(pointers.next_if(p.stats));
  t.m2 = static_cast<float*>(pointers.next_if(p.stats));
  return t;
}

Cost Definition::cost(const Problem& p, DType dtype) {
  const std::int64_t taps = p.upsample ? 4 : p.kernel * p.kernel;
  Cost cost;
  cost.flops = 2.0 * static_cast<double>(p.n * p.out_h() * p.out_w()) * static_cast<double>(p.cout) *
               static_cast<double>(taps * p.cin);
  for (const TensorSpec& spec : tensors(p, dtype)) cost.bytes += static_cast<double>(spec.bytes());
  cost.pipe = dtype == DType::fp32 ? Pipe::fma : Pipe::tensor;
  return cost;
}

// y is rounded once, by at most u(dtype); sums of length k are fp32, as in gemm: a tensor core truncates its partial
// sum once per 16 products (2^-23 of its size), an FMA chain drifts by less; the epilogue adds a few units.
//
// Summed weights (upsample) are rounded too, each by a relative error with a standard deviation of at most 0.41 u (u^2
// / 6, uniform mantissas), and independently, so the sum of k products is off by 0.41 u of its standard deviation: 0.6
// u in relative L2 with y's own rounding, 2.5 u at six standard deviations. scale and SiLU (slope up to 1.1) magnify
// it, and rms(y) may be somewhat below that of the sums: 6 u and 2 u.
//
// ReLU may leave little of an output of a few elements, so that rms(y) is far below that of the sums that were rounded.
Tolerance Definition::tolerance(const Problem& p, DType dtype) {
  constexpr double kEpilogueUnits = 32;
  const double u = unit_roundoff(dtype);
  const double k = static_cast<double>(p.kernel * p.kernel * p.cin);
  const double relu = p.act == convolution::Activation::relu ? 4 : 1;
  const double sums = relu * (std::ceil(k / 16) + kEpilogueUnits) * 0x1p-23;
  if (p.upsample) return {6 * u + sums, 2 * u + sums};
  return {u + sums, u + sums};
}

convolution::Convolution describe(const Problem& p, Form form) {
  using namespace convolution;
  Convolution c = !p.upsample            ? plain(p.n, p.h, p.w, p.cin, p.cout, static_cast<int>(p.kernel),
                                                 static_cast<int>(p.stride), static_cast<int>(p.pad))
                  : form == Form::phased ? upsampled_phases(p.n, p.h, p.w, p.cin, p.cout)
                                         : upsampled_direct(p.n, p.h, p.w, p.cin, p.cout);
  c.act = p.act;
  c.bias = p.bias;
  c.affine = p.affine;
  c.image_shift = p.image_shift;
  c.residual = p.residual;
  c.stats = p.stats;
  c.gain = static_cast<float>(p.gain);
  return c;
}

convolution::Operands operands(const Tensors& t) {
  return {t.x, t.w, t.bias, t.scale, t.shift, t.image_shift, t.residual, t.y, t.mean, t.m2};
}

}  // namespace noisefloor::conv2d
