// The variants of conv_transpose2d: kernels/convolution does the work, as four phases, one per parity of the output's
// row and column, each an ordinary convolution with the taps that meet there.
#include "kernels/convolution/variants.h"
#include "kernels/conv_transpose2d/conv_transpose2d.h"

namespace noisefloor::conv_transpose2d {
namespace {

// 4x4: output 2 o + p takes inputs o - 1 + p + t for t = 0, 1, under taps 3 - p - 2 t. 2x2: input o, under tap p.
convolution::Axis axis(const Problem& p, std::int64_t in) {
  convolution::Axis axis;
  axis.in = axis.out = static_cast<int>(in);
  axis.phases = 2;
  axis.kernel_taps = static_cast<int>(p.kernel);
  if (p.kernel == 2) {
    axis.tap_phase = 1;
    return axis;
  }
  axis.taps = 2;
  axis.origin = -1;
  axis.phase_shift = 1;
  axis.first_tap = 3;
  axis.tap_phase = -1;
  axis.tap_step = -2;
  return axis;
}

convolution::Convolution describe(const Problem& p) {
  convolution::Convolution c;
  c.images = static_cast<int>(p.n);
  c.cin = static_cast<int>(p.cin);
  c.cout = static_cast<int>(p.cout);
  c.y = axis(p, p.h);
  c.x = axis(p, p.w);
  c.act = p.act;
  c.bias = p.bias;
  return c;
}

}  // namespace

std::span<const Definition::Variant> variants() {
  return convolution::Variants<Definition, describe>::kVariants;
}

}  // namespace noisefloor::conv_transpose2d
