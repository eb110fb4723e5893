// layernorm, elementwise, resample, timestep_embedding, q_sample and edm_precondition on the host: oracle and host
// variant against numbers worked out by hand, problems that make no sense, and what each rung says it needs. (That the
// host variants match the oracle on every test problem is verify_test.cpp's.)
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/catalogue.h"
#include "kernels/core/noise_stream.h"
#include "kernels/q_sample/ring_steps.h"
#include "tests/support/host_data.h"

namespace noisefloor {
namespace {

HostData data_of(const char* op, const std::string& text, DType dtype = DType::fp32) {
  const Op& found = *find_op(op);
  return {found, found.parse(text), dtype, 1};
}

// The oracle's and the host variant's values of `output` are `expected`.
void expect_values(HostData& data, const std::string& output, const std::vector<double>& expected) {
  const std::vector<double> oracle = data.reference(output);
  ASSERT_EQ(oracle.size(), expected.size());
  ASSERT_TRUE(data.run_host().ok());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(oracle[i], expected[i], 1e-9) << output << i;
    EXPECT_NEAR(data.get(output, static_cast<std::int64_t>(i)), expected[i], 2e-6) << output << i;
  }
}

double silu(double v) {
  return v / (1 + std::exp(-v));
}

TEST(layernorm, ARowByHand) {
  // 1, 3, 5, 7: mean 4, variance 5.
  HostData data = data_of("layernorm", "rows=1,channels=4,residual=1,fusion=scale_shift,eps=1e-12");
  data.set("x", {1, 2, 3, 4});
  data.set("residual", {0, 1, 2, 3});
  data.set("gamma", {1, 1, 2, 1});
  data.set("beta", {0, 0.5, 0, 0});
  data.set("scale", {0, 0, 0, 1});
  data.set("shift", {0, 0, 0, -1});
  const double unit = 1 / std::sqrt(5.0);
  expect_values(data, "y", {-3 * unit, -unit + 0.5, 2 * unit, 6 * unit - 1});
  expect_values(data, "sum", {1, 3, 5, 7});
}

TEST(layernorm, RowsOfAnImageShareItsScale) {
  HostData data = data_of("layernorm", "rows=4,channels=2,images=2,fusion=scale_shift,affine=0,eps=1e-12");
  data.set("x", {0, 2, 0, 2, 0, 2, 0, 2});
  data.set("scale", {0, 0, 1, 1});
  data.set("shift", {0, 0, 5, 5});
  expect_values(data, "y", {-1, 1, -1, 1, 3, 7, 3, 7});
}

// The outlier stands where a variance in one pass might take its origin.
TEST(layernorm, AnOutlierCostsNoDigits) {
  for (const std::int64_t channels : {320, 9000}) {
    HostData data = data_of("layernorm", "rows=2,channels=" + std::to_string(channels));
    std::vector<double> x;
    for (std::int64_t i = 0; i < 2 * channels; ++i) x.push_back(i % channels == 0 ? 1000 : data.get("x", i));
    data.set("x", x);
    ASSERT_TRUE(data.run_host().ok());
    EXPECT_EQ(data.difference(), "") << channels << " channels";
  }
}

TEST(elementwise, FormulasByHand) {
  HostData add = data_of("elementwise", "op=add,channels=2,scale=0.5");
  add.set("a", {1, 2});
  add.set("b", {3, -8});
  expect_values(add, "y", {2, -3});

  HostData fma = data_of("elementwise", "op=silu_fma,n=2,hw=2,channels=1,broadcast=1");
  fma.set("a", {1, -1});
  fma.set("b", {1, 2, 3, 4});
  fma.set("c", {2, 0.5});
  expect_values(fma, "y", {silu(3), silu(5), silu(0.5), silu(1)});

  HostData geglu = data_of("elementwise", "op=geglu,hw=2,channels=1");
  geglu.set("x", {2, 1, 3, -1});
  const double phi = 0.841344746068542949;  // Phi(1)
  expect_values(geglu, "y", {2 * phi, -3 * (1 - phi)});

  HostData relu = data_of("elementwise", "op=relu,channels=3");
  relu.set("x", {-1, 0, 2});
  expect_values(relu, "y", {0, 0, 2});
}

TEST(elementwise, ReluKeepsNan) {
  HostData data = data_of("elementwise", "op=relu,channels=2");
  data.set("x", {NAN, 1});
  ASSERT_TRUE(data.run_host().ok());
  EXPECT_TRUE(std::isnan(data.get("y", 0)));
}

TEST(elementwise, LayoutsAreEachOthersInverse) {
  HostData to = data_of("elementwise", "op=nchw_to_nhwc,n=2,hw=2,channels=3");
  to.set("x", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const std::vector<double> nhwc{0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11};
  expect_values(to, "y", nhwc);
  HostData back = data_of("elementwise", "op=nhwc_to_nchw,n=2,hw=2,channels=3");
  back.set("x", nhwc);
  expect_values(back, "y", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
}

TEST(elementwise, CastRoundsToNearestEven) {
  HostData data = data_of("elementwise", "op=cast,channels=3,to=bf16");
  data.set("x", {1 + 0x1p-8, 1 + 3 * 0x1p-8, -2.5});  // two ties
  ASSERT_TRUE(data.run_host().ok());
  EXPECT_EQ(data.get("y", 0), 1);
  EXPECT_EQ(data.get("y", 1), 1 + 0x1p-6);
  EXPECT_EQ(data.get("y", 2), -2.5);
}

TEST(resample, FormulasByHand) {
  HostData up = data_of("resample", "op=nearest_up2,h=1,w=2,channels=2");
  up.set("x", {1, 2, 3, 4});
  expect_values(up, "y", {1, 2, 1, 2, 3, 4, 3, 4, 1, 2, 1, 2, 3, 4, 3, 4});
  HostData down = data_of("resample", "op=average_down2,h=2,w=4,channels=1");
  down.set("x", {1, 2, 5, 5, 3, 4, 5, 9});
  expect_values(down, "y", {2.5, 6});
  HostData concat = data_of("resample", "op=concat,h=1,w=2,channels=2,skip_channels=1");
  concat.set("x", {1, 2, 3, 4});
  concat.set("skip", {8, 9});
  expect_values(concat, "y", {1, 2, 8, 3, 4, 9});
}

TEST(resample, ConcatenatesWholeTensorsAsOnePixel) {
  HostData data = data_of("resample", "op=concat,h=1,w=1,channels=196608,skip_channels=196608");
  ASSERT_TRUE(data.run_host().ok());
  for (std::int64_t i = 0; i < 196608; ++i) {
    ASSERT_EQ(data.get("y", i), data.get("x", i));
    ASSERT_EQ(data.get("y", 196608 + i), data.get("skip", i));
  }
}

TEST(timestep_embedding, OrdersAndSpacings) {
  HostData adm = data_of("timestep_embedding", "batch=1,channels=4,max_period=100");
  adm.set("t", {3});  // frequencies 1 and 1/10
  expect_values(adm, "y", {std::cos(3.0), std::cos(0.3), std::sin(3.0), std::sin(0.3)});
  HostData ddpm = data_of("timestep_embedding", "batch=1,channels=4,max_period=100,order=sin_cos,endpoint=1");
  ddpm.set("t", {3});  // frequencies 1 and 1/100
  expect_values(ddpm, "y", {std::sin(3.0), std::sin(0.03), std::cos(3.0), std::cos(0.03)});
  HostData fourier = data_of("timestep_embedding", "batch=1,channels=2,kind=fourier");
  fourier.set("t", {0.5});
  fourier.set("freqs", {0.25});  // an eighth of a turn
  expect_values(fourier, "y", {std::sqrt(0.5), std::sqrt(0.5)});
}

TEST(timestep_embedding, Perceptron) {
  HostData data = data_of("timestep_embedding", "batch=1,channels=2,hidden=2,final_silu=1");
  data.set("t", {0});  // embedding 1, 0
  data.set("w1", {2, 7, -1, 7});
  data.set("b1", {1, 0});
  data.set("w2", {1, 0, 1, 2});
  data.set("b2", {0, 0.5});
  const double h0 = silu(3), h1 = silu(-1);
  expect_values(data, "y", {silu(h0), silu(h0 + 2 * h1 + 0.5)});
}

TEST(timestep_embedding, AThousandStepsLoseNoDigits) {
  HostData data = data_of("timestep_embedding", "batch=1,channels=2");
  data.set("t", {999});
  expect_values(data, "y", {std::cos(999.0), std::sin(999.0)});
}

// An H200 keeps 528 blocks of 256 threads.
TEST(q_sample, RingTakesAsManyStepsAsFillTheRounds) {
  EXPECT_EQ(q_sample::ring_steps(131072, 64, 132), 16u);  // 2048 blocks, 4 rounds of 17; with 8 steps 8 of 9
  EXPECT_EQ(q_sample::ring_steps(131072, 8, 132), 8u);    // 512 blocks, one round
  EXPECT_EQ(q_sample::ring_steps(1536, 32, 132), 1u);     // 192 blocks even so
  EXPECT_EQ(q_sample::ring_steps(256, 1, 132), 1u);
  // Those of tests/problems.
  EXPECT_EQ(q_sample::ring_steps(622600 / 8, 2, 132), 2u);
  EXPECT_EQ(q_sample::ring_steps(1047560 / 8, 16, 132), 16u);
  EXPECT_EQ(q_sample::ring_tiles(4097, 16), 2u);
  EXPECT_EQ(q_sample::ring_tiles(4096, 16), 1u);
}

TEST(q_sample, EachImageHasItsLevel) {
  HostData data = data_of("q_sample", "batch=2,elements=2");
  data.set("x0", {1, 2, 3, 4});
  data.set("noise", {1, -1, 1, -1});
  data.set("levels", {0.5, 2, 1, 0});
  expect_values(data, "x_t", {2.5, -1, 3, 4});
}

TEST(q_sample, DrawsTheNoiseOfSamplerStep) {
  HostData data = data_of("q_sample", "batch=2,elements=5,noise=drawn,keep=1,seed=3,image=7,step=2");
  data.set("x0", std::vector<double>(10, 0.0));
  data.set("levels", {1, 1, 1, 2});
  ASSERT_TRUE(data.run_host().ok());
  for (std::int64_t image = 0; image < 2; ++image)
    for (std::int64_t i = 0; i < 5; ++i) {
      const Philox4 words =
          philox4x32_10({{static_cast<std::uint32_t>(i / 4), 2, 7 + static_cast<std::uint32_t>(image), 0}}, 3);
      const auto pair = static_cast<int>(i % 4 / 2 * 2);
      const double z = box_muller_exact(words.v[pair], words.v[pair + 1], static_cast<int>(i % 2));
      EXPECT_NEAR(data.get("noise_out", image * 5 + i), z, 1e-5);
      EXPECT_NEAR(data.get("x_t", image * 5 + i), z * static_cast<double>(image + 1), 2e-5);
    }
}

TEST(edm_precondition, BothSidesByHand) {
  HostData input = data_of("edm_precondition", "side=input,batch=2,elements=1,sigma_data=3");
  input.set("x", {10, 5});
  input.set("sigma", {4, 1});
  expect_values(input, "y", {2, 5 / std::sqrt(10.0)});
  expect_values(input, "c_noise", {std::log(4.0) / 4, 0});
  HostData output = data_of("edm_precondition", "side=output,batch=1,elements=2,sigma_data=3");
  output.set("x", {25, 0});
  output.set("f", {0, 5});
  output.set("sigma", {4});
  expect_values(output, "d", {9, 12});
}

}  // namespace
}  // namespace noisefloor
