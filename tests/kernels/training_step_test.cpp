// What a training step has beside its network: the batch, the loss and its gradient, the norm that clips, the update.
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "kernels/sampler_step/schedule.h"
#include "kernels/training_batch/training_batch.h"
#include "tests/support/host_data.h"

namespace noisefloor {
namespace {

HostData step_data(const char* op, const std::string& text, DType dtype = DType::fp32) {
  return {*find_op(op), text, dtype, 1};
}

// Of all elements of a tensor, as they lie there.
std::vector<double> numbers_of(const HostData& data, const std::string& name) {
  const std::size_t tensor = data.index(name);
  std::vector<double> all(static_cast<std::size_t>(data.specs[tensor].elements()));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = data.get(tensor, static_cast<std::int64_t>(i));
  return all;
}
double mean_of(const std::vector<double>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size());
}
double deviation_of(const std::vector<double>& numbers) {
  const double mean = mean_of(numbers);
  double squares = 0;
  for (const double number : numbers) squares += (number - mean) * (number - mean);
  return std::sqrt(squares / static_cast<double>(numbers.size()));
}

// The loss is quadratic: a central difference is its derivative, whatever the distance.
TEST(TrainingStep, TheLossesGradientIsItsDerivative) {
  for (const char* text : {"batch=3,elements=5", "batch=3,elements=5,weight=edm,sigma_data=0.7,scale=8"}) {
    SCOPED_TRACE(text);
    HostData data = step_data("mse_loss", text);
    const double scale = std::string(text).ends_with("scale=8") ? 8 : 1, distance = 0x1p-6;
    for (std::int64_t i = 0; i < 15; ++i) data.set(data.index("y"), i, std::round(data.get("y", i) * 256) / 256);
    const std::vector<double> slopes = data.reference("dy");
    for (std::int64_t i = 0; i < 15; ++i) {
      const double y = data.get("y", i);
      data.set(data.index("y"), i, y + distance);
      const double above = data.reference("loss")[0];
      data.set(data.index("y"), i, y - distance);
      const double below = data.reference("loss")[0];
      data.set(data.index("y"), i, y);
      const double slope = slopes[static_cast<std::size_t>(i)];
      EXPECT_NEAR(scale * (above - below) / (2 * distance), slope, 1e-9 * std::abs(slope) + 1e-12) << i;
    }
  }
}

TEST(TrainingStep, LossAndNormByHand) {
  by_hand("mse_loss", "batch=2,elements=2", {{"y", {1, 2, 3, 4}}, {"target", {1, 0, 3, 5}}},
          {{"loss", {1.25}}, {"dy", {0, 1, 0, -0.5}}});
  by_hand("mse_loss", "batch=2,elements=1,weight=edm,sigma_data=0.5",
          {{"y", {1, 2}}, {"target", {0, 0}}, {"sigma", {0.5, 1}}},  // weights 8 and 5
          {{"loss", {14}}, {"dy", {8, 10}}});
  by_hand("grad_norm", "elements=2", {{"g", {3, 4}}}, {{"norm", {5}}, {"scale", {1}}});
  by_hand("grad_norm", "elements=2,clip=2.5", {{"g", {3, 4}}}, {{"norm", {5}}, {"scale", {0.5}}});
  by_hand("grad_norm", "elements=2,clip=5", {{"g", {3, 4}}}, {{"norm", {5}}, {"scale", {1}}});
}

TEST(TrainingStep, ANanOfTheGradientsIsSeen) {
  for (const char* text : {"elements=10000", "elements=10000,clip=1"}) {
    HostData data = step_data("grad_norm", text);
    data.set(data.index("g"), 7777, NAN);
    ASSERT_TRUE(data.run_host().ok());
    for (const char* name : {"norm", "scale"})
      EXPECT_TRUE(std::isnan(data.get(name, 0)) && std::isnan(data.reference(name)[0])) << text << " " << name;
  }
}

TEST(TrainingStep, SumsHaveTheSameBitsWithAnyNumberOfThreads) {
  const int threads = omp_get_max_threads();
  for (const auto& [op, text, output] : {std::tuple{"mse_loss", "batch=33,elements=5000,weight=edm", "loss"},
                                         {"grad_norm", "elements=1000003,clip=1", "norm"}}) {
    HostData data = step_data(op, text);
    std::vector<double> results;
    for (const int by : {1, 2, 3}) {
      omp_set_num_threads(by);
      EXPECT_TRUE(data.run_host().ok());
      results.push_back(data.get(output, 0));
    }
    EXPECT_EQ(results, std::vector<double>(3, results[0])) << op;
  }
  omp_set_num_threads(threads);
}

// Step after step, in double, as the paper's algorithm 2 reads.
struct PlainAdamW {
  double beta1, beta2, eps, decay;
  double p, ema, m = 0, v = 0;
  void step(int t, double rate, double keep, double g) {
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    const double unbiased_m = m / (1 - std::pow(beta1, t)), unbiased_v = v / (1 - std::pow(beta2, t));
    p -= rate * (unbiased_m / (std::sqrt(unbiased_v) + eps) + decay * p);
    ema = keep * ema + (1 - keep) * p;
  }
};

// Masters and moments are as exact in a row of 16 bits as in one of fp32.
TEST(TrainingStep, AdamWIsThePlainLoopsOverManySteps) {
  constexpr int kElements = 3000, kSteps = 25;
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    SCOPED_TRACE(to_string(dtype));
    HostData data = step_data("adamw", "elements=3000,beta1=0.85,beta2=0.97,eps=1e-06,decay=0.1,ema=1,copy=1", dtype);
    data.set("m", std::vector<double>(kElements, 0.0));
    data.set("v", std::vector<double>(kElements, 0.0));
    data.set("ema", numbers_of(data, "p"));
    std::vector<PlainAdamW> plain;
    for (const double p : numbers_of(data, "p")) plain.push_back({0.85, 0.97, 1e-6, 0.1, p, p});
    std::mt19937 random(3);
    for (int t = 1; t <= kSteps; ++t) {
      const double rate = 0.01 / t, keep = 1 - 1.0 / t, clipped = t % 2 == 0 ? 0.5 : 1;
      data.set("step", {rate, 1 / (1 - std::pow(0.85, t)), 1 / (1 - std::pow(0.97, t)), keep});
      data.set("grad_scale", {clipped});
      for (int i = 0; i < kElements; ++i) {
        data.set(data.index("g"), i, std::normal_distribution<double>(0.1, 1)(random));
        plain[static_cast<std::size_t>(i)].step(t, rate, keep, clipped * data.get("g", i));
      }
      ASSERT_TRUE(data.run_host().ok());
    }
    for (int i = 0; i < kElements; ++i) {
      const PlainAdamW& one = plain[static_cast<std::size_t>(i)];
      const double copy = data.get("copy", i), p = data.get("p", i);
      ASSERT_NEAR(p, one.p, 4e-6) << i;
      ASSERT_NEAR(data.get("ema", i), one.ema, 4e-6) << i;
      ASSERT_NEAR(data.get("m", i), one.m, 2e-6) << i;
      ASSERT_NEAR(data.get("v", i), one.v, 2e-6) << i;
      ASSERT_LE(std::abs(copy - p), unit_roundoff(dtype) * std::abs(p)) << i;
    }
  }
}

TEST(TrainingBatch, LevelsOfTheSchedulesAreTheirTables) {
  for (const bool cosine : {false, true}) {
    const auto table =
        sampler_step::cumulative_alphas(cosine ? sampler_step::Schedule::cosine : sampler_step::Schedule::linear);
    for (std::uint32_t t = 0; t < training_batch::kTimesteps; ++t) {
      const double log = training_batch::log_alpha_bar(cosine, t);
      EXPECT_NEAR(std::exp(log), table[t], 1e-7 * table[t]) << cosine << " " << t;
      EXPECT_NEAR(-std::expm1(log), 1 - table[t], 1e-6 * (1 - table[t])) << cosine << " " << t;
    }
  }
}

// Images of 8x8 whose pixel says where it lies and of which image, so that a batch shows what was drawn.
HostData numbered(const std::string& more, double step = 1) {
  HostData data = step_data("training_batch", "h=8,w=8,channels=1,dataset=10,seed=5," + more);
  std::vector<double> images;
  for (int i = 0; i < 640; ++i) images.push_back(i);
  data.set("images", images);
  data.set("step", {std::fmod(step, 65536), std::floor(step / 65536)});
  EXPECT_TRUE(data.run_host().ok());
  return data;
}

// Within five standard deviations of what so many draws make of it.
void expect_share(double share, std::int64_t draws, double expected, const std::string& what) {
  EXPECT_NEAR(share, expected, 5 * std::sqrt(expected * (1 - expected) / static_cast<double>(draws))) << what;
}

TEST(TrainingBatch, DrawsHaveTheirShares) {
  constexpr std::int64_t kBatch = 20000;
  const HostData data = numbered("batch=20000,classes=10,p_mean=-0.4,p_std=1.2,shifted=0.3,flipped=0.2,unlabelled=0.1");
  std::vector<double> logs, noise, moves(9), images(10);
  double unlabelled = 0, flipped = 0;
  for (std::int64_t i = 0; i < kBatch; ++i) {
    const auto at = [&](int row, int column) { return data.get("x0", 64 * i + 8 * row + column); };
    // Pixels of the middle come from the image, whatever moved.
    const int here = static_cast<int>(at(3, 3)), image = here / 64;
    const bool mirrored = at(3, 4) < here;
    const int down = here % 64 / 8 - 3, right = here % 8 - (mirrored ? 4 : 3);
    ASSERT_TRUE(std::abs(down) <= 1 && std::abs(right) <= 1) << i;
    for (int row = 0; row < 8; ++row)
      for (int column = 0; column < 8; ++column) {
        const int from_row = row + down, from = (mirrored ? 7 - column : column) + right;
        const bool inside = from_row >= 0 && from_row < 8 && from >= 0 && from < 8;
        ASSERT_EQ(at(row, column), inside ? 64 * image + 8 * from_row + from : -1);
      }
    ++moves[static_cast<std::size_t>(3 * (down + 1) + right + 1)];
    ++images[static_cast<std::size_t>(image)];
    flipped += mirrored;
    double hot = 0;
    for (int c = 0; c < 10; ++c) hot += data.get("one_hot", 10 * i + c);
    ASSERT_TRUE(hot == 0 || (hot == 1 && data.get("one_hot", 10 * i + image) == 1)) << i;  // label i is i
    unlabelled += hot == 0;
    const double sigma = data.get("level", i);
    logs.push_back(std::log(sigma));
    if (sigma > 0.5)  // x0 is up to 640, and x a float
      for (int e = 0; e < 64; ++e) noise.push_back((data.get("x", 64 * i + e) - data.get("x0", 64 * i + e)) / sigma);
  }
  const double root = std::sqrt(static_cast<double>(kBatch));
  EXPECT_NEAR(mean_of(logs), -0.4, 5 * 1.2 / root);
  EXPECT_NEAR(deviation_of(logs), 1.2, 5 * 1.2 / root);
  EXPECT_NEAR(mean_of(noise), 0, 5 / std::sqrt(static_cast<double>(noise.size())));
  EXPECT_NEAR(deviation_of(noise), 1, 5 / std::sqrt(static_cast<double>(noise.size())));
  for (std::size_t move = 0; move < 9; ++move)
    expect_share(moves[move] / kBatch, kBatch, 0.3 / 9 + (move == 4 ? 0.7 : 0), "move " + std::to_string(move));
  for (const double count : images) expect_share(count / kBatch, kBatch, 0.1, "an image");
  expect_share(flipped / kBatch, kBatch, 0.2, "flipped");
  expect_share(unlabelled / kBatch, kBatch, 0.1, "unlabelled");
}

TEST(TrainingBatch, TimestepsAreEvenAndTheNoiseIsTheTarget) {
  const HostData data = numbered("batch=5000,level=ddpm,schedule=cosine");
  const std::vector<double> steps = numbers_of(data, "level"), noise = numbers_of(data, "noise");
  EXPECT_NEAR(mean_of(steps), 499.5, 5 * 288.7 / std::sqrt(5000.0));
  EXPECT_NEAR(deviation_of(steps), 288.7, 10);
  EXPECT_NEAR(mean_of(noise), 0, 5 / std::sqrt(320000.0));
  EXPECT_NEAR(deviation_of(noise), 1, 0.01);
  const auto table = sampler_step::cumulative_alphas(sampler_step::Schedule::cosine);
  for (std::int64_t i = 0; i < 5000; ++i) {
    const double alpha_bar = table[static_cast<std::size_t>(steps[static_cast<std::size_t>(i)])];
    const double x =
        std::sqrt(alpha_bar) * data.get("x0", 64 * i) + std::sqrt(1 - alpha_bar) * data.get("noise", 64 * i);
    ASSERT_NEAR(data.get("x", 64 * i), x, 1e-4) << i;
  }
}

TEST(TrainingBatch, AnImageDoesNotDependOnTheBatch) {
  const std::string recipe = "classes=10,shifted=0.5,flipped=0.5,unlabelled=0.5,";
  const HostData whole = numbered(recipe + "batch=12,first=100"), part = numbered(recipe + "batch=5,first=104");
  for (const auto& [name, per_image] : {std::pair{"x0", 64}, {"x", 64}, {"level", 1}, {"one_hot", 10}}) {
    const std::vector<double> all = numbers_of(whole, name);
    EXPECT_EQ(numbers_of(part, name), std::vector<double>(all.begin() + 4 * per_image, all.begin() + 9 * per_image))
        << name;
  }
}

// Nor does a step's batch repeat that of another, whose number may differ in either of its halves.
TEST(TrainingBatch, EveryStepDrawsAnew) {
  std::set<double> levels;
  for (const double step : {0.0, 1.0, 65535.0, 65536.0, 65537.0, 1e6})
    for (const double level : numbers_of(numbered("batch=2", step), "level")) levels.insert(level);
  EXPECT_EQ(levels.size(), 12u);
  const auto noise_of = [](double step) { return numbers_of(numbered("batch=2,level=ddpm", step), "noise"); };
  EXPECT_NE(noise_of(65536), noise_of(0));
  EXPECT_EQ(noise_of(65536), noise_of(65536));
}

}  // namespace
}  // namespace noisefloor
