// The gradients of convolutions on the host: against numbers worked out by hand, and tied to conv2d's oracle. The
// convolution is linear in x, in w, and in its biases, so each gradient times what it is of adds up to dy times y.
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "tests/support/host_data.h"

namespace noisefloor {
namespace {

HostData gradient_data(const char* op, const std::string& text) {
  return {*find_op(op), text, DType::fp32, 1};
}

double inner(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}
std::vector<double> values_of(const HostData& data, const char* name) {
  std::vector<double> all(static_cast<std::size_t>(data.specs[data.index(name)].elements()));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = data.get(name, static_cast<std::int64_t>(i));
  return all;
}

TEST(convolution_gradient, OraclesAreTheAdjointsOfTheConvolution) {
  for (const std::string shape :
       {"n=2,h=5,w=4,cin=3,cout=2", "n=2,h=5,w=4,cin=1,cout=3,stride=2", "n=1,h=6,w=7,cin=3,cout=1,stride=2",
        "n=1,h=6,w=5,cin=2,cout=3,kernel=1", "n=1,h=5,w=6,cin=2,cout=3,kernel=1,stride=2",
        "n=2,h=3,w=4,cin=3,cout=2,upsample=1", "n=1,h=7,w=8,cin=2,cout=2,kernel=5,stride=2,pad=1",
        "n=1,h=3,w=4,cin=2,cout=2,pad=2", "n=1,h=3,w=4,cin=2,cout=2,kernel=1,pad=1,stride=2"}) {
    SCOPED_TRACE(shape);
    const HostData plain = gradient_data("conv2d", shape + ",bias=0");
    HostData biased = gradient_data("conv2d", shape + ",image_shift=1"), dgrad = gradient_data("conv2d_dgrad", shape);
    HostData wgrad = gradient_data("conv2d_wgrad", shape + ",image_shift=1");
    for (const char* name : {"x", "w"}) biased.set(name, values_of(plain, name));
    dgrad.set("weight", values_of(plain, "w"));
    wgrad.set("x", values_of(plain, "x"));
    const std::vector<double> dy = values_of(wgrad, "dy");
    dgrad.set("dy", dy);
    const double product = inner(dy, plain.reference("y"));
    const double allowed = 1e-9 * std::sqrt(inner(dy, dy) * inner(plain.reference("y"), plain.reference("y")));
    EXPECT_NEAR(inner(dgrad.reference("dx"), values_of(plain, "x")), product, allowed);
    EXPECT_NEAR(inner(wgrad.reference("dw"), values_of(plain, "w")), product, allowed);
    EXPECT_NEAR(inner(wgrad.reference("dbias"), values_of(biased, "bias")) +
                    inner(wgrad.reference("dshift"), values_of(biased, "image_shift")),
                inner(dy, biased.reference("y")) - product, 10 * allowed);
  }
}

TEST(convolution_gradient, NumbersWorkedOutByHand) {
  const std::vector<double> taps{1, 2, 3, 4, 5, 6, 7, 8, 9};
  // An output's gradient goes to the pixels under its kernel; of stride 2 there is one output, over the first pixel.
  by_hand("conv2d_dgrad", "n=1,h=2,w=2,cin=1,cout=1", {{"dy", {1, 10, 100, 1000}}, {"weight", taps}},
          {{"dx", {1245, 2356, 4578, 5689}}});
  by_hand("conv2d_dgrad", "n=1,h=2,w=2,cin=1,cout=1,stride=2,scale=2,residual=1,residual_scale=-1",
          {{"dy", {10}}, {"weight", taps}, {"residual", {1, 2, 3, 4}}}, {{"dx", {99, 118, 157, 176}}});
  // Each of four pixels of u meets all four outputs, as the four pixels above do.
  by_hand("conv2d_dgrad", "n=1,h=1,w=1,cin=1,cout=1,upsample=1", {{"dy", {1, 10, 100, 1000}}, {"weight", taps}},
          {{"dx", {1245 + 2356 + 4578 + 5689}}});
  by_hand(
      "conv2d_wgrad", "n=1,h=2,w=2,cin=1,cout=1,scale=3,image_shift=1",
      {{"x", {1, 10, 100, 1000}}, {"dy", {1, 0, 0, 2}}},
      {{"dw", {3 * 2, 3 * 20, 0, 3 * 200, 3 * 2001, 3 * 10, 0, 3 * 100, 3 * 1000}}, {"dbias", {9}}, {"dshift", {9}}});
}

// The op's tolerance lets a library round them to the dtype.
TEST(convolution_gradient, OfParametersTheHostsAreSumsInFp32OfAnyDtype) {
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    HostData data(*find_op("conv2d_wgrad"), "n=40,h=8,w=8,cin=9,cout=30", dtype, 1);
    ASSERT_TRUE(data.run_host().ok());
    EXPECT_EQ(data.difference(1e-5), "");
  }
}

// Shares of pixels follow from the problem, not from the machine.
TEST(convolution_gradient, WeightsGradientIsTheSameOnOneThreadAndOnTwo) {
  HostData data = gradient_data("conv2d_wgrad", "n=70,h=8,w=8,cin=5,cout=70,image_shift=1");
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  ASSERT_TRUE(data.run_host().ok());
  const auto alone = data.storage;
  omp_set_num_threads(2);
  ASSERT_TRUE(data.run_host().ok());
  omp_set_num_threads(before);
  EXPECT_EQ(data.storage, alone);
}

}  // namespace
}  // namespace noisefloor
