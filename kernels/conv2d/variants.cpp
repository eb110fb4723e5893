// The variants of conv2d: kernels/convolution does the work, of 1x1 layers gemm. What each variant does better than the
// one below is in README.md.
#include <array>

#include "kernels/conv2d/pointwise.h"
#include "kernels/convolution/variants.h"

namespace noisefloor::conv2d {
namespace {

struct Rules {
  static convolution::Convolution direct(const Problem& problem) { return describe(problem, Form::direct); }
  static convolution::Convolution phased(const Problem& problem) { return describe(problem, Form::phased); }
  static convolution::Operands operands(const Tensors& tensors) { return conv2d::operands(tensors); }
  static bool sums_weights(const Problem& problem) { return problem.upsample; }
};

using Variants = convolution::Variants<Definition, Rules>;

// With a row behind those of the engine.
template <std::size_t... kRow>
constexpr std::array<Definition::Variant, sizeof...(kRow) + 1> with_pointwise(std::index_sequence<kRow...>) {
  return {Variants::kVariants[kRow]...,
          {kPtxSm90aPointwise, {NOISEFLOOR_IF_SM90A(launch_pointwise), can_run_pointwise}}};
}
constexpr auto kVariants = with_pointwise(std::make_index_sequence<std::size(Variants::kVariants)>());

}  // namespace

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::conv2d
