// Ops against numbers worked out by hand: what they cost, and of those without a room of tests what the oracle and the
// host variant compute.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "kernels/catalogue.h"
#include "kernels/core/noise_stream.h"
#include "kernels/q_sample/q_sample.h"
#include "tests/support/host_data.h"

namespace noisefloor {
namespace {

HostData data_of(const char* op, const std::string& text, DType dtype = DType::fp32) {
  const Op& found = *find_op(op);
  return {found, found.parse(text), dtype, 1};
}

TEST(Costs, AreTheFlopsAndEachTensorOnce) {
  using enum DType;
  const struct {
    const char *op, *text;
    DType dtype;
    double flops, bytes;  // -1: not of interest
    std::optional<Pipe> pipe = {};
    std::optional<Shortcut> shortcut = {};
  } kTable[] = {
      {"gemm", "m=10,n=20,k=30,residual=1", bf16, 2.0 * 10 * 20 * 30, 2.0 * (10 * 30 + 20 * 30 + 20 + 2 * 10 * 20),
       Pipe::tensor},
      {"gemm", "m=10,n=20,k=30,residual=1,image_shift=1,images=5", bf16, 2.0 * 10 * 20 * 30,
       2.0 * (10 * 30 + 20 * 30 + 20 + 2 * 10 * 20 + 5 * 20)},
      {"gemm", "m=10,n=20,k=30,residual=1,blend=1", bf16, 2.0 * 10 * 20 * 30,
       2.0 * (10 * 30 + 20 * 30 + 20 + 3 * 10 * 20) + 4},
      {"gemm", "m=10,n=20,k=30,act=geglu,bias=0", fp32, 4.0 * 10 * 20 * 30, 4.0 * (10 * 30 + 2 * 20 * 30 + 10 * 20),
       Pipe::fma},
      {"gemm", "m=10,n=20,k=30,bias=0,layout=tn,to=fp32,row_sums=1", bf16, 2.0 * 10 * 20 * 30,
       2.0 * (10 * 30 + 20 * 30) + 4.0 * (10 * 20 + 10)},
      {"attention_backward", "batch=2,heads=3,seq_q=5,seq_kv=7,dim=8", bf16, 10.0 * 2 * 3 * 5 * 7 * 8,
       2.0 * 2 * 3 * 8 * (4 * 5 + 4 * 7) + 4.0 * 2 * 3 * 5, Pipe::tensor},
      {"conv2d", "n=2,h=8,w=6,cin=10,cout=20,stride=2,residual=1", bf16, 2.0 * (2 * 4 * 3) * 20 * (9 * 10),
       2.0 * (2 * 8 * 6 * 10 + 20 * 90 + 20 + 2 * (2 * 4 * 3 * 20)), Pipe::tensor, Shortcut::none},
      {"conv2d", "n=1,h=8,w=8,cin=10,cout=20,upsample=1,bias=0,stats=1", fp32, 2.0 * (16 * 16) * 20 * (4 * 10),
       4.0 * (64 * 10 + 20 * 90 + 256 * 20 + 2 * 4 * 20), Pipe::fma, Shortcut::four_phases},
      {"conv2d", "n=2,h=8,w=6,cin=10,cout=20,stride=2,side=7,side_skip=4", bf16, 2.0 * (2 * 4 * 3) * 20 * (9 * 10 + 11),
       2.0 * (2 * 8 * 6 * 10 + 20 * 90 + 20 + 2 * 4 * 3 * 11 + 20 * 11 + 2 * 4 * 3 * 20)},
      {"conv2d_dgrad", "n=2,h=8,w=6,cin=10,cout=20,stride=2,residual=1", bf16, 2.0 * (2 * 4 * 3) * 20 * (9 * 10),
       2.0 * (2 * 4 * 3 * 20 + 20 * 90 + 2 * (2 * 8 * 6 * 10)), Pipe::tensor, Shortcut::none},
      {"conv2d_dgrad", "n=1,h=8,w=8,cin=10,cout=20,upsample=1", fp32, 2.0 * (16 * 16) * 20 * (4 * 10),
       4.0 * (256 * 20 + 20 * 90 + 64 * 10), Pipe::fma, Shortcut::four_phases},
      {"conv2d_wgrad", "n=2,h=8,w=6,cin=10,cout=20,image_shift=1", bf16, 2.0 * (2 * 8 * 6) * 20 * (9 * 10),
       2.0 * (2 * 8 * 6 * 30 + 2 * 20) + 4.0 * (20 * 90 + 20), Pipe::tensor, Shortcut::none},
      {"conv3d_temporal", "batch=2,frames=3,hw=5,cin=7,cout=11,residual=1", bf16, 2.0 * 30 * 11 * 21,
       2.0 * (30 * 7 + 11 * 21 + 11 + 2 * 30 * 11)},
      {"conv3d_temporal", "batch=2,frames=3,hw=5,cin=7,cout=11,image_shift=1", bf16, 2.0 * 30 * 11 * 21,
       2.0 * (30 * 7 + 11 * 21 + 11 + 2 * 11 + 30 * 11)},
      // Taps that meet an output.
      {"conv_transpose2d", "n=2,h=3,w=5,cin=7,cout=11", bf16, 2.0 * (2 * 6 * 10) * 11 * (4 * 7),
       2.0 * (2 * 3 * 5 * 7 + 11 * 16 * 7 + 11 + 2 * 6 * 10 * 11)},
      {"conv_transpose2d", "n=2,h=3,w=5,cin=7,cout=11,kernel=2", bf16, 2.0 * (2 * 6 * 10) * 11 * 7,
       2.0 * (2 * 3 * 5 * 7 + 11 * 4 * 7 + 11 + 2 * 6 * 10 * 11)},
      {"attention", "batch=2,heads=8,seq_q=4096,seq_kv=77,dim=40", bf16, 4.0 * 2 * 8 * 4096 * 77 * 40,
       2.0 * 2 * 8 * 40 * (2 * 4096 + 2 * 77), std::nullopt, Shortcut::none},
      // Of V and the output: the weight of one key is 1. lse is of Q and K.
      {"attention", "batch=2,heads=8,seq_q=4096,seq_kv=1,dim=40", bf16, -1, 2.0 * (2 * 8 * 40 * (1 + 4096)),
       std::nullopt, Shortcut::one_key},
      {"attention", "batch=2,heads=8,seq_q=1,seq_kv=1,dim=40,lse=1", bf16, -1, -1, std::nullopt, Shortcut::none},
      {"temporal_attention", "batch=2,frames=1,hw=64,heads=5,dim=64,layout=packed_3hd", bf16, -1,
       2.0 * 2 * (2 * 64 * 5 * 64), std::nullopt, Shortcut::one_key},
      {"temporal_attention", "batch=2,frames=14,hw=9216,heads=5,dim=64", bf16, 4.0 * 2 * 9216 * 5 * 14 * 14 * 64,
       4 * 2.0 * 2 * 14 * 9216 * 5 * 64},
      {"groupnorm", "n=32,hw=4096,channels=192,groups=32,fusion=silu", bf16, 10.0 * 32 * 4096 * 192 + 3 * 32 * 192,
       2 * 2.0 * 32 * 4096 * 192 + 2 * 2 * 192},
      // Coefficients are fp32; of given statistics they need no x. A skip is a part of x. Halved, y and x_down are a
      // half.
      {"groupnorm", "n=2,hw=100,channels=12,groups=4,fusion=silu,slab_stats=given,coefficients=1", bf16,
       (3.0 + 6 * 2) * 2 * 12, 2 * 2 * 12 + 2 * 4.0 * 2 * 2 * 12 + 4 * 2 * 2 * 12},
      {"groupnorm", "n=2,hw=100,channels=12,groups=4,fusion=silu,coefficients=1", bf16, 4.0 * 2 * 100 * 12 + 3 * 2 * 12,
       2.0 * 2 * 100 * 12 + 2 * 2 * 12 + 4 * 2 * 2 * 12},
      {"groupnorm", "n=2,hw=5,channels=12,groups=4,skip_channels=7", bf16, 6.0 * 2 * 5 * 12 + 3 * 2 * 12,
       2 * 2.0 * 2 * 5 * 12 + 2 * 2 * 12},
      {"groupnorm", "n=2,hw=48,channels=12,groups=4,fusion=silu,down_w=6", bf16, 12.0 * 2 * 48 * 12 + 3 * 2 * 12,
       1.5 * 2 * 2 * 48 * 12 + 2 * 2 * 12},
      // dgamma and dbeta are fp32.
      {"groupnorm_backward", "n=2,hw=5,channels=12,groups=4,fusion=silu,residual=1", bf16, 21.0 * 120 + 12 * 24,
       4 * 2.0 * 120 + 2 * 2 * 12 + 2 * 4 * 12 + 2 * 4 * 8},
      {"layernorm_backward", "rows=6,channels=10,images=2,fusion=scale_shift", bf16, 17.0 * 60,
       3 * 2.0 * 60 + 2 * 2 * 10 + 2 * 4 * 10 + 3 * 2 * 2 * 10},
      {"sampler_step", "batch=2,elements=1024,solver=ddpm,noise=given", bf16, -1, 4 * 4096 + 48},
      {"sampler_step", "batch=2,elements=1024,solver=ddpm,noise=drawn", bf16, -1, 3 * 4096 + 48},
      {"sampler_step", "batch=2,elements=1024,solver=ddim,guidance=2", bf16, -1, 4 * 4096 + 48},
      {"sampler_step", "batch=2,elements=1024,solver=dpmpp_2m", bf16, -1, 5 * 4096 + 48},
      {"sampler_step", "batch=2,elements=1024,solver=dpmpp_2m,step=0", bf16, -1, 4 * 4096 + 48},
      {"sampler_step", "batch=2,elements=1024,solver=dpmpp_2m,step=49", bf16, -1, 3 * 4096 + 48},
  };
  for (const auto& row : kTable) {
    SCOPED_TRACE(std::string(row.op) + " " + row.text);
    const Cost cost = find_op(row.op)->cost(find_op(row.op)->parse(row.text), row.dtype);
    EXPECT_EQ(cost.flops, row.flops < 0 ? cost.flops : row.flops);
    EXPECT_EQ(cost.bytes, row.bytes < 0 ? cost.bytes : row.bytes);
    EXPECT_EQ(cost.pipe, row.pipe.value_or(cost.pipe));
    EXPECT_EQ(cost.shortcut, row.shortcut.value_or(cost.shortcut));
  }
}

// Two videos of three frames of two pixels: frames meet their neighbours, pixels and videos do not.
TEST(conv3d_temporal, FramesMeetTheirNeighbours) {
  by_hand("conv3d_temporal", "batch=2,frames=3,hw=2,cin=1,cout=1,residual=1",
          {{"x", {1, 2, 10, 20, 100, 200, 3, 4, 30, 40, 300, 400}},
           {"w", {5, 6, 7}},
           {"bias", {1000}},
           {"residual", {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.5}}},
          {{"y",
            {1000 + 6 + 70, 1000 + 12 + 140, 1000 + 5 + 60 + 700, 1000 + 10 + 120 + 1400, 1000 + 50 + 600,
             1000 + 100 + 1200, 1000 + 18 + 210, 1000 + 24 + 280, 1000 + 15 + 180 + 2100, 1000 + 20 + 240 + 2800,
             1000 + 150 + 1800, 1000 + 200 + 2400 + 0.5}}});
  // A row for each video, of all its frames and pixels.
  by_hand("conv3d_temporal", "batch=2,frames=2,hw=2,cin=1,cout=2,bias=0,image_shift=1,residual=1",
          {{"x", std::vector<double>(8, 0.0)},
           {"w", std::vector<double>(6, 1.0)},
           {"image_shift", {1, 2, 30, 40}},
           {"residual", {0, 0, 0, 0, 0, 0, 0, 500, 0, 0, 0, 0, 0, 0, 0, 700}}},
          {{"y", {1, 2, 1, 2, 1, 2, 1, 502, 30, 40, 30, 40, 30, 40, 30, 740}}});
}

// A 4x4 kernel of rows 1..4, 5..8, ... spread from one pixel loses its rim to the pad; from two, neighbours overlap.
TEST(conv_transpose2d, PixelsAreSpreadByTheKernel) {
  by_hand("conv_transpose2d", "n=1,h=1,w=2,cin=1,cout=1,kernel=2",
          {{"x", {1, 10}}, {"w", {1, 2, 3, 4}}, {"bias", {0.5}}},
          {{"y", {1.5, 2.5, 10.5, 20.5, 3.5, 4.5, 30.5, 40.5}}});
  const std::vector<double> taps{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  for (const auto& [second, y] : {std::pair(-10.0, std::vector<double>{6, 0, 0, 0, 10, 0, 0, 0}),
                                  {10.0, {6, 7 + 50, 8 + 60, 70, 10, 11 + 90, 12 + 100, 110}}})
    by_hand("conv_transpose2d", "n=1,h=1,w=2,cin=1,cout=1,kernel=4,bias=0,act=relu", {{"x", {1, second}}, {"w", taps}},
            {{"y", y}});
}

double silu(double v) {
  return v / (1 + std::exp(-v));
}

TEST(layernorm, ARowByHand) {
  // 1, 3, 5, 7: mean 4, variance 5.
  const double unit = 1 / std::sqrt(5.0);
  by_hand("layernorm", "rows=1,channels=4,residual=1,fusion=scale_shift,eps=1e-12",
          {{"x", {1, 2, 3, 4}},
           {"residual", {0, 1, 2, 3}},
           {"gamma", {1, 1, 2, 1}},
           {"beta", {0, 0.5, 0, 0}},
           {"scale", {0, 0, 0, 1}},
           {"shift", {0, 0, 0, -1}}},
          {{"y", {-3 * unit, -unit + 0.5, 2 * unit, 6 * unit - 1}}, {"sum", {1, 3, 5, 7}}});
}

TEST(layernorm, RowsOfAnImageShareItsScale) {
  by_hand("layernorm", "rows=4,channels=2,images=2,fusion=scale_shift,affine=0,eps=1e-12",
          {{"x", {0, 2, 0, 2, 0, 2, 0, 2}}, {"scale", {0, 0, 1, 1}}, {"shift", {0, 0, 5, 5}}},
          {{"y", {-1, 1, -1, 1, 3, 7, 3, 7}}});
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
  by_hand("elementwise", "op=add,channels=2,scale=0.5", {{"a", {1, 2}}, {"b", {3, -8}}}, {{"y", {2, -3}}});
  by_hand("elementwise", "op=silu_fma,n=2,hw=2,channels=1,broadcast=1",
          {{"a", {1, -1}}, {"b", {1, 2, 3, 4}}, {"c", {2, 0.5}}}, {{"y", {silu(3), silu(5), silu(0.5), silu(1)}}});
  const double phi = 0.841344746068542949;  // Phi(1)
  by_hand("elementwise", "op=geglu,hw=2,channels=1", {{"x", {2, 1, 3, -1}}}, {{"y", {2 * phi, -3 * (1 - phi)}}});
  by_hand("elementwise", "op=relu,channels=3", {{"x", {-1, 0, 2}}}, {{"y", {0, 0, 2}}});
}

TEST(elementwise, ReluKeepsNan) {
  HostData data = data_of("elementwise", "op=relu,channels=2");
  data.set("x", {NAN, 1});
  ASSERT_TRUE(data.run_host().ok());
  EXPECT_TRUE(std::isnan(data.get("y", 0)));
}

TEST(elementwise, LayoutsAreEachOthersInverse) {
  const std::vector<double> nhwc{0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11};
  by_hand("elementwise", "op=nchw_to_nhwc,n=2,hw=2,channels=3", {{"x", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}}},
          {{"y", nhwc}});
  by_hand("elementwise", "op=nhwc_to_nchw,n=2,hw=2,channels=3", {{"x", nhwc}},
          {{"y", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}}});
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
  by_hand("resample", "op=nearest_up2,h=1,w=2,channels=2", {{"x", {1, 2, 3, 4}}},
          {{"y", {1, 2, 1, 2, 3, 4, 3, 4, 1, 2, 1, 2, 3, 4, 3, 4}}});
  by_hand("resample", "op=average_down2,h=2,w=4,channels=1", {{"x", {1, 2, 5, 5, 3, 4, 5, 9}}}, {{"y", {2.5, 6}}});
  by_hand("resample", "op=concat,h=1,w=2,channels=2,skip_channels=1", {{"x", {1, 2, 3, 4}}, {"skip", {8, 9}}},
          {{"y", {1, 2, 8, 3, 4, 9}}});
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
  // frequencies 1 and 1/10
  by_hand("timestep_embedding", "batch=1,channels=4,max_period=100", {{"t", {3}}},
          {{"y", {std::cos(3.0), std::cos(0.3), std::sin(3.0), std::sin(0.3)}}});
  // frequencies 1 and 1/100
  by_hand("timestep_embedding", "batch=1,channels=4,max_period=100,order=sin_cos,endpoint=1", {{"t", {3}}},
          {{"y", {std::sin(3.0), std::sin(0.03), std::cos(3.0), std::cos(0.03)}}});
  // an eighth of a turn
  by_hand("timestep_embedding", "batch=1,channels=2,kind=fourier", {{"t", {0.5}}, {"freqs", {0.25}}},
          {{"y", {std::sqrt(0.5), std::sqrt(0.5)}}});
}

TEST(timestep_embedding, Perceptron) {
  // embedding 1, 0
  const double h0 = silu(3), h1 = silu(-1);
  by_hand("timestep_embedding", "batch=1,channels=2,hidden=2,final_silu=1",
          {{"t", {0}}, {"w1", {2, 7, -1, 7}}, {"b1", {1, 0}}, {"w2", {1, 0, 1, 2}}, {"b2", {0, 0.5}}},
          {{"y", {silu(h0), silu(h0 + 2 * h1 + 0.5)}}});
}

TEST(timestep_embedding, AThousandStepsLoseNoDigits) {
  by_hand("timestep_embedding", "batch=1,channels=2", {{"t", {999}}}, {{"y", {std::cos(999.0), std::sin(999.0)}}});
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
  by_hand("q_sample", "batch=2,elements=2",
          {{"x0", {1, 2, 3, 4}}, {"noise", {1, -1, 1, -1}}, {"levels", {0.5, 2, 1, 0}}}, {{"x_t", {2.5, -1, 3, 4}}});
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
  by_hand("edm_precondition", "side=input,batch=2,elements=1,sigma_data=3", {{"x", {10, 5}}, {"sigma", {4, 1}}},
          {{"y", {2, 5 / std::sqrt(10.0)}}, {"c_noise", {std::log(4.0) / 4, 0}}});
  by_hand("edm_precondition", "side=output,batch=1,elements=2,sigma_data=3",
          {{"x", {25, 0}}, {"f", {0, 5}}, {"sigma", {4}}}, {{"d", {9, 12}}});
}

}  // namespace
}  // namespace noisefloor
