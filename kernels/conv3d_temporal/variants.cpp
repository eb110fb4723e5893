// The variants of conv3d_temporal: kernels/convolution does the work, on images whose rows are frames and whose columns
// are the pixels of a frame.
#include "kernels/convolution/variants.h"
#include "kernels/conv3d_temporal/conv3d_temporal.h"

namespace noisefloor::conv3d_temporal {
namespace {

convolution::Convolution describe(const Problem& p) {
  convolution::Convolution c = convolution::plain(p.batch, p.frames, p.hw, p.cin, p.cout, 3, 1, 1);
  c.x.taps = c.x.kernel_taps = 1;
  c.x.origin = 0;
  c.bias = p.bias;
  c.image_shift = p.image_shift;
  c.residual = p.residual;
  return c;
}

}  // namespace

std::span<const Definition::Variant> variants() {
  return convolution::Variants<Definition, describe>::kVariants;
}

}  // namespace noisefloor::conv3d_temporal
