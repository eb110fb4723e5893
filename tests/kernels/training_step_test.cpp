// What a training step has beside its network: the batch, the loss and its gradient, the norm that clips, the update.
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "kernels/sampler_step/schedule.h"
#include "kernels/training_batch/training_batch.h"
#include "tests/support/host_data.h"

namespace noisefloor {
namespace {

HostData step_data(const char* op, const std::string& text) {
  return {*find_op(op), text, DType::fp32, 1};
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

TEST(TrainingStep, NumbersWorkedOutByHand) {
  by_hand("mse_loss", "batch=2,elements=2", {{"y", {1, 2, 3, 4}}, {"target", {1, 0, 3, 5}}},
          {{"loss", {1.25}}, {"dy", {0, 1, 0, -0.5}}});
  by_hand("mse_loss", "batch=2,elements=1,weight=edm,sigma_data=0.5",
          {{"y", {1, 2}}, {"target", {0, 0}}, {"sigma", {0.5, 1}}},  // weights 8 and 5
          {{"loss", {14}}, {"dy", {8, 10}}});
  by_hand("grad_norm", "elements=2", {{"g", {3, 4}}}, {{"norm", {5}}, {"scale", {1}}});
  by_hand("grad_norm", "elements=2,clip=2.5", {{"g", {3, 4}}}, {{"norm", {5}}, {"scale", {0.5}}});
  by_hand("grad_norm", "elements=2,clip=5", {{"g", {3, 4}}}, {{"norm", {5}}, {"scale", {1}}});
  // A clipped gradient of 1: m is 0.75, v 2.25, and the step 0.5 (0.5 p + 2 m / sqrt(v)).
  by_hand("adamw", "elements=1,beta1=0.5,beta2=0.5,eps=1e-12,decay=0.5,ema=1,copy=1",
          {{"p", {1}},
           {"m", {0.5}},
           {"v", {3.5}},
           {"ema", {2}},
           {"g", {2}},
           {"step", {0.5, 2, 1, 0.75}},
           {"grad_scale", {0.5}}},
          {{"p", {0.25}}, {"m", {0.75}}, {"v", {2.25}}, {"ema", {1.5625}}, {"copy", {0.25}}});
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

// How sums fall into parts follows from the problem, not from the machine.
TEST(TrainingStep, SumsHaveTheSameBitsWithAnyNumberOfThreads) {
  const int threads = omp_get_max_threads();
  for (const auto& [op, text] : {std::pair{"mse_loss", "batch=33,elements=5000,weight=edm"},
                                 {"grad_norm", "elements=1000003,clip=1"},
                                 {"conv2d_wgrad", "n=70,h=8,w=8,cin=5,cout=70,image_shift=1"}}) {
    HostData data = step_data(op, text);
    std::vector<decltype(data.storage)> results;
    for (const int by : {1, 2, 3}) {
      omp_set_num_threads(by);
      EXPECT_TRUE(data.run_host().ok());
      results.push_back(data.storage);
    }
    EXPECT_TRUE(results[0] == results[1] && results[0] == results[2]) << op;
  }
  omp_set_num_threads(threads);
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

TEST(TrainingBatch, TimestepsAreEvenAndTheNoiseIsNormal) {
  const HostData data = numbered("batch=5000,level=ddpm,schedule=cosine");
  const std::vector<double> steps = data.values("level"), noise = data.values("noise");
  EXPECT_NEAR(mean_of(steps), 499.5, 5 * 288.7 / std::sqrt(5000.0));
  EXPECT_NEAR(deviation_of(steps), 288.7, 10);
  EXPECT_NEAR(mean_of(noise), 0, 5 / std::sqrt(320000.0));
  EXPECT_NEAR(deviation_of(noise), 1, 0.01);
}

TEST(TrainingBatch, AnImageDoesNotDependOnTheBatch) {
  const std::string recipe = "classes=10,shifted=0.5,flipped=0.5,unlabelled=0.5,";
  const HostData whole = numbered(recipe + "batch=12,first=100"), part = numbered(recipe + "batch=5,first=104");
  for (const auto& [name, per_image] : {std::pair{"x0", 64}, {"x", 64}, {"level", 1}, {"one_hot", 10}}) {
    const std::vector<double> all = whole.values(name);
    EXPECT_EQ(part.values(name), std::vector<double>(all.begin() + 4 * per_image, all.begin() + 9 * per_image)) << name;
  }
}

// Nor does a step's batch repeat that of another, whose number may differ in either of its halves.
TEST(TrainingBatch, EveryStepDrawsAnew) {
  std::set<double> levels;
  for (const double step : {0.0, 1.0, 65535.0, 65536.0, 65537.0, 1e6})
    for (const double level : numbered("batch=2", step).values("level")) levels.insert(level);
  EXPECT_EQ(levels.size(), 12u);
  const auto noise_of = [](double step) { return numbered("batch=2,level=ddpm", step).values("noise"); };
  EXPECT_NE(noise_of(65536), noise_of(0));
  EXPECT_EQ(noise_of(65536), noise_of(65536));
}

}  // namespace
}  // namespace noisefloor
