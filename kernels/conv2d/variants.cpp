// The ladder of conv2d: kernels/convolution does the work. What each rung does better than the one below is in
// README.md.
#include "kernels/conv2d/conv2d.h"
#include "kernels/convolution/ladder.h"

namespace noisefloor::conv2d {
namespace {

struct Rules {
  static convolution::Convolution direct(const Problem& problem) { return describe(problem, Form::direct); }
  static convolution::Convolution phased(const Problem& problem) { return describe(problem, Form::phased); }
  static convolution::Operands operands(const Tensors& tensors) { return conv2d::operands(tensors); }
  static bool sums_weights(const Problem& problem) { return problem.upsample; }
};

}  // namespace

std::span<const Definition::Variant> variants() {
  return convolution::Ladder<Definition, Rules>::kVariants;
}

}  // namespace noisefloor::conv2d
