// The variants of conv2d: kernels/convolution does the work, of 1x1 layers gemm. What each variant does better than the
// one below is in README.md.
#include <array>

#include "kernels/conv2d/conv2d.h"
#include "kernels/convolution/variants.h"
#include "kernels/gemm/gemm.h"

namespace noisefloor::conv2d {
namespace {

// Unused in a build without sm_90a.
[[maybe_unused]] Status launch_pointwise(const Problem& p, DType dtype, const Tensors& t, const Scratch& scratch,
                                         const LaunchContext& context) {
  const gemm::Tensors tensors{
      .a = t.x, .b = t.w, .bias = t.bias, .image_shift = t.image_shift, .residual = t.residual, .d = t.y};
  return gemm::ptx_variant().launch(product_of(p), dtype, tensors, scratch, context);
}

convolution::Convolution direct(const Problem& problem) {
  return describe(problem, Form::direct);
}
convolution::Convolution phased(const Problem& problem) {
  return describe(problem, Form::phased);
}
using Variants = convolution::Variants<Definition, direct, phased>;

// With a row behind those of the engine.
template <std::size_t... kRow>
constexpr std::array<Definition::Variant, sizeof...(kRow) + 1> with_pointwise(std::index_sequence<kRow...>) {
  return {
      Variants::kVariants[kRow]...,
      {{"ptx_sm90a_pointwise", Kind::ptx, Arch::sm90a}, {NOISEFLOOR_IF_SM90A(launch_pointwise), can_run_pointwise}}};
}
constexpr auto kVariants = with_pointwise(std::make_index_sequence<std::size(Variants::kVariants)>());

}  // namespace

gemm::Problem product_of(const Problem& p) {
  return {.m = p.n * p.h * p.w,
          .n = p.cout,
          .k = p.cin,
          .act = p.act == Activation::silu ? gemm::Activation::silu : gemm::Activation::none,
          .bias = p.bias,
          .residual = p.residual,
          .image_shift = p.image_shift,
          .images = p.image_shift ? p.n : 1};
}

Support can_run_pointwise(const Problem& p, DType dtype) {
  if (p.kernel != 1 || p.stride != 1 || p.pad != 0) return unsupported("needs kernel=1, stride=1 and pad=0");
  if (p.norm != Norm::none) return unsupported("has no norm of the input");
  if (p.side > 0) return unsupported("has no second source of its sums");
  if (p.act == Activation::relu || p.affine || p.gain != 1)
    return unsupported("needs gemm's epilogue: bias, image_shift, silu or nothing, residual");
  if (p.residual_upsample) return unsupported("adds no residual of half the height and width");
  if (p.stats) return unsupported("has no statistics of the output");
  if (p.cin % 8 != 0 || p.cout % 8 != 0)
    return unsupported("needs cin and cout to be multiples of 8: TMA moves 16 bytes");
  return gemm::ptx_variant().can_run(product_of(p), dtype);
}

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::conv2d
