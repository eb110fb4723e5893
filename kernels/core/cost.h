// What a problem costs at least, for the roofline.
#pragma once

#include "kernels/core/dtype.h"

namespace noisefloor {

// The unit that bounds an op's arithmetic.
enum class Pipe { fma, tensor };

// A way around the general formula that this problem opens to whoever looks for it. Comparisons of problems that have
// one say little of those that have none.
enum class Shortcut {
  none,
  one_key,     // a softmax over one key is 1: the output is V
  four_phases  // a 3x3 convolution of an image that was doubled is four 2x2 ones of the image itself
};
constexpr const char* to_string(Shortcut shortcut) {
  return shortcut == Shortcut::one_key ? "one_key" : shortcut == Shortcut::four_phases ? "four_phases" : "none";
}

// FLOPs (a multiply-add is two) and compulsory bytes (what the outputs depend on read once, each output written once),
// with the shortcut taken where there is one.
struct Cost {
  double flops = 0;
  double bytes = 0;
  Pipe pipe = Pipe::fma;
  Shortcut shortcut = Shortcut::none;
};

// The unit that products of such matrices run on.
constexpr Pipe product_pipe(DType dtype) {
  return dtype == DType::fp32 ? Pipe::fma : Pipe::tensor;
}

}  // namespace noisefloor
