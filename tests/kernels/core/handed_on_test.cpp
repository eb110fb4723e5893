#include <gtest/gtest.h>

#include "kernels/catalogue.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/gemm/gemm.h"

namespace noisefloor {
namespace {

// "" where it stays a convolution.
std::string product_of(const std::string& convolution, DType dtype = DType::bf16) {
  const auto handed = handed_on("conv2d", find_op("conv2d")->parse(convolution), dtype);
  if (handed) {
    EXPECT_EQ(handed->op, "gemm");
  }
  return handed ? handed->text : "";
}

TEST(HandedOn, AConvolutionOf1x1IsAProductOfPixels) {
  EXPECT_EQ(product_of("n=2,h=16,w=8,cin=960,cout=576,kernel=1"), "m=256,n=576,k=960");
  EXPECT_EQ(product_of("n=1,h=16,w=16,cin=576,cout=64,kernel=1,residual=1"), "m=256,n=64,k=576,residual=1");
}

TEST(HandedOn, TheProductHasTheLayersMultiplyAdds) {
  const std::string layer = "n=3,h=5,w=7,cin=24,cout=40,kernel=1,image_shift=1";
  const Op &conv2d = *find_op("conv2d"), &gemm = *find_op("gemm");
  const AnyProblem product = gemm.parse(product_of(layer));
  EXPECT_EQ(product.as<gemm::Problem>().images, 3);
  EXPECT_EQ(gemm.cost(product, DType::bf16).flops, conv2d.cost(conv2d.parse(layer), DType::bf16).flops);
}

TEST(HandedOn, WhatTheVariantDoesNotTakeStays) {
  EXPECT_EQ(product_of("n=1,h=16,w=16,cin=576,cout=576"), "");
  EXPECT_EQ(product_of("n=1,h=16,w=16,cin=4,cout=576,kernel=1"), "");
  EXPECT_EQ(product_of("n=1,h=16,w=16,cin=576,cout=576,kernel=1,stats=1"), "");
  EXPECT_FALSE(handed_on("gemm", find_op("gemm")->parse("m=8,n=8,k=8"), DType::bf16));
}

}  // namespace
}  // namespace noisefloor
